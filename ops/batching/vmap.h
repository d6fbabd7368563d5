#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <tuple>
#include <utility>

namespace warpfuse {

/// The torch.func.vmap that calls a batching rule. While this lives, operators that are called are
/// those of the level below it.
class Vmap {
 public:
  Vmap() = default;

  /// The tensor with the vmapped dimension in front, expanded where it has none.
  at::Tensor in_front(const at::Tensor& tensor) const {
    const auto [value, dim] = unwrapped(tensor);
    if (dim.has_value()) {
      return value.movedim(*dim, 0);
    }
    std::vector<c10::SymInt> sizes = value.sym_sizes().vec();
    sizes.insert(sizes.begin(), layer_.batchSize());
    return value.expand_symint(sizes);
  }

  /// The tensor below this level, and which of its dimensions is the vmapped one.
  std::tuple<at::Tensor, std::optional<int64_t>> unwrapped(const at::Tensor& tensor) const {
    return at::functorch::unwrapTensorAtLevel(tensor, layer_.layerId());
  }

  /// A result whose dimension 0 is the vmapped one.
  at::Tensor batched(at::Tensor result) const {
    return at::functorch::makeBatched(std::move(result), 0, layer_.layerId());
  }

  const at::functorch::DynamicLayer& layer() const { return layer_; }

 private:
  static at::functorch::DynamicLayer current() {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    TORCH_INTERNAL_ASSERT(layer.has_value());
    return *layer;
  }

  at::functorch::DynamicLayer layer_ = current();
  c10::impl::ExcludeDispatchKeyGuard below_{c10::DispatchKey::FuncTorchBatched};
};

}  // namespace warpfuse
