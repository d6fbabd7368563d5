#pragma once

#include "runtime/text/tokenizer.h"

namespace warpfuse::host {

struct Prompt {
  std::string text;
  std::string source;  // for messages: "prompts.txt line 3"; empty for the command line's own
  std::string id;      // the "id" of a JSON object, as JSON; empty where it has none
};

// The prompts of a file, or of stdin if it is "-": a line each, without empty lines, a byte order
// mark, and LF or CRLF. Each line holds a JSON string, or an object with a string "prompt", if the
// name ends in .jsonl, the first line is a JSON object, or all lines are JSON strings. Throws
// Error(usage) when the file cannot be read, has no prompt, or a line is not as it should be.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);

// A whole file, or stdin if it is "-", as one prompt, without a byte order mark and the last line's
// end. Throws Error(usage).
Prompt read_prompt(const std::filesystem::path& file);

std::vector<std::vector<int64_t>> encode(const Tokenizer& tokenizer,
                                         const std::vector<Prompt>& prompts);

}  // namespace warpfuse::host
