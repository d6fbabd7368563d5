#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <warpfuse/dispatch.h>

#include <string>

#include "core/arguments.h"

namespace warpfuse {

/// Calls of the operator Op::kName, whose handle is looked up once. Signature may have structs of
/// arguments (core/arguments.h).
template <typename Op, typename Signature>
class Calls;

template <typename Op, typename Result, typename... Args>
class Calls<Op, Result(Args...)> {
 public:
  static Result call(const Args&... args) {
    if constexpr ((HasFields<Args> || ...)) {
      return with_fields([](const auto&... fields) { return handle().call(fields...); }, args...);
    } else {
      return handle().call(args...);
    }
  }

  /// The operator's kernel for the first of `keys`.
  static Result redispatch(c10::DispatchKeySet keys, const Args&... args) {
    if constexpr ((HasFields<Args> || ...)) {
      return with_fields(
          [&](const auto&... fields) { return handle().redispatch(keys, fields...); }, args...);
    } else {
      return handle().redispatch(keys, args...);
    }
  }

 private:
  using Schema = SchemaSignature<Result, Args...>;

  static const c10::TypedOperatorHandle<Schema>& handle() {
    static const auto handle =
        detail::find_operator<Schema>((std::string("warpfuse::") + Op::kName).c_str());
    return handle;
  }
};

}  // namespace warpfuse
