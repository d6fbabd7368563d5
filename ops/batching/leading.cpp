// Batching rules of the operators that take any number of leading dimensions.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/WrapDimMinimal.h>

#include "batching/vmap.h"
#include "common/registration.h"

namespace warpfuse {
namespace {

// One call for the whole batch: the vmapped dimension goes in front of every tensor. `dim` counts
// over the dimensions behind it; a tensor without dimensions gets one for it to name.
void with_leading_dimension(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Vmap vmap;
  const auto& arguments = op.schema().arguments();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(arguments.size());
  const int64_t rank = first->toTensor().dim();  // without the vmapped dimension
  bool scalars = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = *(first + static_cast<std::ptrdiff_t>(i));
    if (arguments[i].name() == "dim") {
      value = c10::maybe_wrap_dim(value.toInt(), rank) + 1;
      scalars = rank == 0;
    }
  }
  for (auto value = first; value != stack->end(); ++value) {
    if (value->isTensor() && value->toTensor().defined()) {
      const at::Tensor tensor = vmap.in_front(value->toTensor());
      *value = scalars ? tensor.unsqueeze(-1) : tensor;
    }
  }
  op.callBoxed(stack);
  for (auto result = stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size());
       result != stack->end(); ++result) {
    const at::Tensor tensor = result->toTensor();
    *result =
        tensor.sym_size(0) != vmap.layer().batchSize()
            ? vmap.batched(vmap.in_front(tensor))  // empty: the form that was asked for has none
            : vmap.batched(scalars ? tensor.squeeze(-1) : tensor);
  }
}

WARPFUSE_LIBRARY_IMPL(FuncTorchBatched, m) {
  for (const char* name : {"softmax", "log_softmax", "_softmax_backward", "_log_softmax_backward",
                           "fused_logprob", "fused_logprob_lse", "fused_logprob_entropy",
                           "_fused_logprob", "_fused_logprob_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<with_leading_dimension>());
  }
}

}  // namespace
}  // namespace warpfuse
