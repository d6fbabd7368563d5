// Batching rules of scaled_masked_softmax: the vmapped dimension becomes a part of the batch.

#include <ATen/core/dispatch/Dispatcher.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>

#include "batching/vmap.h"
#include "common/check.h"
#include "common/registration.h"
#include "rowwise/mask_arguments.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// Arguments with the vmapped dimension and dim 0, the batch, as one dimension. Scores of two
/// dimensions have a batch of 1.
class Fold {
 public:
  explicit Fold(const at::Tensor& scores) : sizes_(scores.sym_sizes().vec()) {}

  at::Tensor scores(const at::Tensor& tensor) const {
    const at::Tensor front = vmap_.in_front(tensor);
    return has_batch() ? front.flatten(0, 1) : front;
  }

  /// query_positions or key_lengths.
  OptionalTensor index(const OptionalTensor& given) const {
    return is_given(given) ? OptionalTensor(vmap_.in_front(*given).flatten(0, 1)) : std::nullopt;
  }

  OptionalTensor mask(const OptionalTensor& given) const {
    if (!is_given(given)) {
      return std::nullopt;
    }
    const size_t rank = sizes_.size(), own_rank = given->dim();
    const bool has_no_batch = !has_batch() || own_rank < rank || given->sym_size(0) == 1;
    if (const auto [value, dim] = vmap_.unwrapped(*given); !dim.has_value() && has_no_batch) {
      return value;  // broadcast over the folded batch as it is
    }
    std::vector<c10::SymInt> sizes = given->sym_sizes().vec();
    sizes.insert(sizes.begin(), rank - own_rank, 1);
    sizes.insert(sizes.begin(), vmap_.layer().batchSize());
    const at::Tensor front = vmap_.in_front(*given).reshape_symint(sizes);
    if (!has_batch()) {
      return front;
    }
    sizes[1] = sizes_[0];
    return front.expand_symint(sizes).flatten(0, 1);
  }

  /// A result of the folded scores' shape.
  at::Tensor unfold(const at::Tensor& result) const {
    std::vector<c10::SymInt> sizes = sizes_;
    sizes.insert(sizes.begin(), vmap_.layer().batchSize());
    return vmap_.batched(result.view_symint(sizes));
  }

 private:
  static bool is_given(const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->defined();
  }
  bool has_batch() const { return sizes_.size() > 2; }

  Vmap vmap_;
  std::vector<c10::SymInt> sizes_;  // of the scores, without the vmapped dimension
};

at::Tensor forward(const at::Tensor& scores, double scale, const OptionalTensor& attn_mask,
                   c10::string_view causal, const OptionalTensor& query_positions,
                   const OptionalTensor& key_lengths, int64_t window,
                   std::optional<double> masked_value) {
  const MaskArguments masks{attn_mask, causal, query_positions, key_lengths, window, masked_value};
  check_masks("scaled_masked_softmax", scores, masks);
  const Fold fold(scores);
  return fold.unfold(scaled_masked_softmax(fold.scores(scores), scale, fold.mask(attn_mask), causal,
                                           fold.index(query_positions), fold.index(key_lengths),
                                           window, masked_value));
}

at::Tensor backward(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                    const OptionalTensor& attn_mask, c10::string_view causal,
                    const OptionalTensor& query_positions, const OptionalTensor& key_lengths,
                    int64_t window, std::optional<double> masked_value) {
  constexpr const char* kOp = "_scaled_masked_softmax_backward";
  const MaskArguments masks{attn_mask, causal, query_positions, key_lengths, window, masked_value};
  check_masks(kOp, output, masks);
  check_alike(kOp, "grad_output", grad_output, output);
  const Fold fold(output);
  static const auto op =
      detail::find_operator<decltype(backward)>("warpfuse::_scaled_masked_softmax_backward");
  return fold.unfold(op.call(fold.scores(grad_output), fold.scores(output), scale,
                             fold.mask(attn_mask), causal, fold.index(query_positions),
                             fold.index(key_lengths), window, masked_value));
}

WARPFUSE_LIBRARY_IMPL(FuncTorchBatched, m) {
  m.impl("scaled_masked_softmax", forward);
  m.impl("_scaled_masked_softmax_backward", backward);
}

}  // namespace
}  // namespace warpfuse
