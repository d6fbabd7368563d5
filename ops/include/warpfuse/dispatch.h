#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

namespace warpfuse::detail {

/// The operator `name`, "warpfuse::...", as a typed handle. Throws c10::Error if libwarpfuse.so is
/// not loaded. A program compiles against these headers without linking the library: the library
/// may be linked, dlopened or preloaded, as long as it is loaded before the first call.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  TORCH_CHECK(
      found, name,
      ": no such operator; is libwarpfuse.so loaded? Open it with dlopen, preload it, or link "
      "it with -Wl,--no-as-needed -lwarpfuse: otherwise the linker drops the library, because it "
      "needs none of its symbols");
  return found->typed<Signature>();
}

}  // namespace warpfuse::detail
