#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/macros/Macros.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

/// TORCH_LIBRARY(warpfuse, m) and TORCH_LIBRARY_IMPL(warpfuse, key, m) of a library that may be
/// loaded twice: a second copy in a process, under another path, registers nothing. libtorch would
/// throw out of its static initialisation, which ends the process: no C frame, such as Python's
/// ctypes, passes an exception on, and a C++ compiler takes dlopen for a function that never
/// throws.
///
/// They stand in an anonymous namespace.
#define WARPFUSE_LIBRARY(m) WARPFUSE_REGISTER_(DEF, std::nullopt, m)
#define WARPFUSE_LIBRARY_IMPL(key, m) WARPFUSE_REGISTER_(IMPL, c10::DispatchKey::key, m)

// NOLINTBEGIN(bugprone-macro-parentheses): a declared name in parentheses is another declaration.
#define WARPFUSE_REGISTER_(kind, key, m) \
  WARPFUSE_REGISTER_NAMED_(C10_CONCATENATE(registered_, C10_UID), kind, key, m)
#define WARPFUSE_REGISTER_NAMED_(name, kind, key, m)                              \
  void C10_CONCATENATE(name, _in)(torch::Library&);                               \
  const std::optional<torch::Library> name = warpfuse::register_in_first_copy(    \
      torch::Library::kind, key, C10_CONCATENATE(name, _in), __FILE__, __LINE__); \
  void C10_CONCATENATE(name, _in)(torch::Library & m)
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
