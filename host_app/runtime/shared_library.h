#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "runtime/errors.h"

namespace warpfuse::host {

// The handle of dlopen with RTLD_NOW and RTLD_LOCAL; never closed, since libtorch keeps pointers to
// what was registered. Throws Error(code), also when the library's static initialisation throws, as
// a TORCH_LIBRARY does that clashes with another; the process should then end.
void* open_library(const std::filesystem::path& path, std::string_view role,
                   ExitCode code = ExitCode::plugin);

// The same for a library that may be missing, by the name that the linker's search path has it
// under.
bool try_open_library(const char* name);

// The file of the loaded library that defines `symbol`; empty when no global library does.
std::filesystem::path file_of_global_symbol(const char* symbol);

// The running program's own file.
std::filesystem::path executable_path();

// A library of this name beside the running program, else in ../lib.
std::optional<std::filesystem::path> find_beside_program(const char* name);

// Whether the bytes of the file contain `text`.
bool file_contains(const std::filesystem::path& path, std::string_view text);

// The same file, by whatever path it is reached.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace warpfuse::host
