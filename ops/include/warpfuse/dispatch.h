#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace warpfuse::detail {

/// The operator `warpfuse::<name>` as a typed handle. Throws c10::Error when libwarpfuse.so is not
/// loaded. A program compiles against these headers and needs no link to the library: it may be
/// linked, dlopened or preloaded, as long as it is there before the first call.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace warpfuse::detail
