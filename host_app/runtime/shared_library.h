#pragma once

#include <filesystem>
#include <string_view>

namespace warpfuse::host {

// dlopen with RTLD_NOW and RTLD_LOCAL; never closed, since libtorch keeps pointers to what was
// registered. Throws Error(plugin). When the library's static initialisation ends the program (a
// TORCH_LIBRARY that clashes with another does), the program still ends with one line and that
// code.
void open_library(const std::filesystem::path& path, std::string_view role);

// The file of the loaded library that defines `symbol`; empty when no global library does.
std::filesystem::path file_of_global_symbol(const char* symbol);

// The running program's own file.
std::filesystem::path executable_path();

// Whether the bytes of the file contain `text`.
bool file_contains(const std::filesystem::path& path, std::string_view text);

// The same file, by whatever path it is reached.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace warpfuse::host
