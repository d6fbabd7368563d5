#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace warpfuse::host {

// The prompts of a file: its lines that are not empty, as bytes; or, where its name ends in .jsonl,
// a JSON value a line, a string or an object with a string "prompt". Throws Error(usage) that names
// the file, and the line, when it cannot be read or has no prompt.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

}  // namespace warpfuse::host
