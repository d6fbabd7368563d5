#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <string>
#include <type_traits>

#include "core/operator.h"

namespace warpfuse {

/// An operator's kernel for ADInplaceOrView. It bumps the versions of the tensors that the operator
/// writes to, those it takes as Tensor&: a backward that saved one of them finds it changed.
template <typename Op, typename Signature>
struct InPlace;

template <typename Op, typename Result, typename... Args>
struct InPlace<Op, Result (*)(Args...)> {
  static Result call(c10::DispatchKeySet keys, Args... args) {
    static const auto handle =
        detail::find_operator<Result(Args...)>((std::string("warpfuse::") + Op::kName).c_str());
    const auto compute = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return handle.redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    };
    Result result = compute();
    (bump<Args>(args), ...);
    return result;
  }

 private:
  template <typename Arg>
  static void bump([[maybe_unused]] const std::remove_reference_t<Arg>& argument) {
    if constexpr (std::is_same_v<Arg, at::Tensor&>) {
      argument.unsafeGetTensorImpl()->bump_version();
    }
  }
};

/// In WARPFUSE_LIBRARY_IMPL(ADInplaceOrView, m).
template <typename Op>
void register_in_place(torch::Library& m) {
  m.impl(Op::kName, TORCH_FN((InPlace<Op, decltype(&Op::template run<Meta<Op>>)>::call)));
}

}  // namespace warpfuse
