#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"

namespace warpfuse::host {

struct Prompt {
  std::string text;
  std::string source;  // for messages: "prompts.txt line 3"; empty for the command line's own
  std::string id;      // the "id" of a JSON object, as JSON; empty where it has none
};

// The prompts of a file, or of stdin where it is "-": a line each, empty lines left out, whether
// they end in LF or CRLF. It holds a JSON string, or an object with a string "prompt", on each line
// where its name ends in .jsonl, its first line is a JSON object, or all of its lines are JSON
// strings. A byte order mark is no part of the text. Throws Error(usage) when the file cannot be
// read, has no prompt, or a line is not as it should be.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);

// One prompt of a whole file, or of stdin where it is "-", less a line's end behind it and a byte
// order mark before it. Throws Error(usage).
Prompt read_prompt(const std::filesystem::path& file);

std::vector<std::vector<int64_t>> encode(const Tokenizer& tokenizer,
                                         const std::vector<Prompt>& prompts);

}  // namespace warpfuse::host
