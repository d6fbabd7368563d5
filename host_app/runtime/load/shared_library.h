#pragma once

#include <filesystem>
#include <optional>

#include "runtime/errors.h"

namespace warpfuse::host {

// Returns dlopen's handle (RTLD_NOW, RTLD_LOCAL). It is never closed, since libtorch keeps pointers
// to registered operators. Throws Error(code), also if a static initialiser throws, as a
// TORCH_LIBRARY that clashes with another does; the process should then end.
void* open_library(const std::filesystem::path& path, std::string_view role,
                   ExitCode code = ExitCode::plugin);

// Loads an optional library by its name on the linker's search path.
bool try_open_library(const char* name);

// The file of the loaded library that defines `symbol`; empty when no global library does.
std::filesystem::path file_of_global_symbol(const char* symbol);

// The running program's own file.
std::filesystem::path executable_path();

// A library of this name next to the running program, else in ../lib.
std::optional<std::filesystem::path> find_beside_program(const char* name);

// Whether the bytes of the file contain `text`.
bool file_contains(const std::filesystem::path& path, std::string_view text);

// Whether two paths lead to the same file.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace warpfuse::host
