#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

namespace warpfuse::detail {

/// The operator `name`, "warpfuse::...", as a typed handle. Throws c10::Error when libwarpfuse.so
/// is not loaded. A program compiles against these headers and needs no link to the library: it may
/// be linked, dlopened or preloaded, as long as it is there before the first call.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  TORCH_CHECK(
      found, name,
      ": no such operator; is libwarpfuse.so loaded? Open it with dlopen, preload it, or link "
      "it with -Wl,--no-as-needed -lwarpfuse: a linker drops a library of which it needs no "
      "symbol");
  return found->typed<Signature>();
}

}  // namespace warpfuse::detail
