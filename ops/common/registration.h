#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

/// TORCH_LIBRARY(warpfuse, m) and TORCH_LIBRARY_IMPL(warpfuse, key, m) of a library that may be
/// loaded twice: a second copy in a process, under another path, registers nothing. libtorch would
/// throw out of its static initialisation, which ends the process: no C frame, such as Python's
/// ctypes, passes an exception on, and a C++ compiler takes dlopen for a function that never
/// throws.
///
/// They stand in an anonymous namespace, once per key and file.
#define WARPFUSE_LIBRARY(m) WARPFUSE_REGISTER_(define_operators, DEF, std::nullopt, m)
#define WARPFUSE_LIBRARY_IMPL(key, m) \
  WARPFUSE_REGISTER_(register_##key, IMPL, c10::DispatchKey::key, m)

// NOLINTBEGIN(bugprone-macro-parentheses): a declared name in parentheses is another declaration.
#define WARPFUSE_REGISTER_(name, kind, key, m)                                               \
  void name(torch::Library&);                                                                \
  const std::optional<torch::Library> name##_library =                                       \
      warpfuse::register_in_first_copy(torch::Library::kind, key, name, __FILE__, __LINE__); \
  void name(torch::Library& m)
// NOLINTEND(bugprone-macro-parentheses)

namespace warpfuse {

/// Why this copy of the library has registered nothing: one line that names it and the other one;
/// null where it serves the process.
const char* load_error();

/// What `define` registers, as long as the result lives; nothing where load_error() says why.
std::optional<torch::Library> register_in_first_copy(torch::Library::Kind kind,
                                                     std::optional<c10::DispatchKey> key,
                                                     void (*define)(torch::Library&),
                                                     const char* file, uint32_t line);

}  // namespace warpfuse
