#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/errors.h"

namespace warpfuse::host {

// Opens a file of a model or a tokenizer. Throws Error(model) when there is none, it may not be
// read, or it is not a regular file: a folder, or a pipe that would be waited for.
std::ifstream open_model_file(const std::filesystem::path& path);

// The whole content of one. `hint` is appended to the message.
std::string read_model_file(const std::filesystem::path& path, std::string_view hint = "");

// The JSON object in one. Throws Error(model) for another value, too.
nlohmann::json read_json_object(const std::filesystem::path& path, std::string_view hint = "");

// The whole content of a file that the user names, which may be a pipe; "-" is stdin. Throws
// Error(code).
std::string read_file(const std::filesystem::path& path, ExitCode code);

// Throws Error(output) where replace_file() could not write; leaves no file.
void require_replaceable(const std::filesystem::path& path);

// Writes a regular file under another name first, so that a reader, or a crash, never finds half of
// it; its permissions stay. A device, a pipe or a link is written as it is. Throws Error(output),
// or Error(interrupted) where a signal came before a large file was written.
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace warpfuse::host
