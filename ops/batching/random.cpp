// Random operators under torch.func.vmap: what its `randomness` says, and then libtorch's loop over
// the batch, each sample with an rng of its own or all with one, so that a backward under any vmap
// draws the mask again.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <warpfuse/dispatch.h>

#include <string>

#include "batching/vmap.h"
#include "common/check.h"
#include "common/registration.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Fresh random numbers, of a call that needs none.
at::Tensor draw_rng(const at::Tensor& like) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, int64_t, double, bool, const OptionalTensor&)>(
      "warpfuse::_dropout_softmax");
  return std::get<2>(op.call(at::zeros({1}, like.options()), 0, 0.5, false, std::nullopt));
}

// The data is the first argument. A call without dropout draws nothing.
void with_randomness(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  using at::functorch::RandomnessType;
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::FuncTorchVmapMode);
  const auto arguments = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const auto named = [&](const char* name) -> c10::IValue& {
    const auto index = op.schema().argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index.has_value());
    return arguments[*index];
  };
  c10::IValue& data = *arguments;
  c10::IValue& rng = named("rng");
  if (rng.isNone() && named("dropout_p").toDouble() > 0) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    const RandomnessType randomness = layer->randomness();
    WARPFUSE_CHECK(randomness != RandomnessType::Error, op.schema().name().substr(10), "vmap",
                   "randomness=\"different\" or \"same\"", "\"error\"");
    if (randomness == RandomnessType::Same) {
      rng = draw_rng(data.toTensor());
    } else if (const Vmap vmap; !std::get<1>(vmap.unwrapped(data.toTensor())).has_value()) {
      data = vmap.batched(vmap.in_front(data.toTensor()));
    }
  }
  op.callBoxed(stack);
}

WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  for (const char* name :
       {"_dropout_softmax", "_linear_dropout_softmax", "_scaled_masked_softmax_dropout"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<with_randomness>());
  }
}

}  // namespace
}  // namespace warpfuse
