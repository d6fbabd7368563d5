#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/errors.h"

namespace warpfuse::host {

// Throws Error(code) when there is no such file, it may not be read, or it is a folder (which
// std::ifstream opens). `hint` is appended to the message.
std::ifstream open_file(const std::filesystem::path& path, ExitCode code,
                        std::string_view hint = "");

// The whole content.
std::string read_file(const std::filesystem::path& path, ExitCode code);

// Writes the file under another name first, so that a reader, or a crash, never finds half of it.
// Throws Error(usage).
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace warpfuse::host
