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

}  // namespace warpfuse::host
