// Batching rules of scaled_masked_softmax: the vmapped dimension becomes a part of the batch.

#include "attention_mask/mask_arguments.h"
#include "batching/vmap.h"
#include "common/check.h"
#include "common/registration.h"
#include "core/calls.h"

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

  MaskArguments masks(const MaskArguments& given) const {
    MaskArguments folded = given;
    folded.attn_mask = mask(given.attn_mask);
    folded.query_positions = index(given.query_positions);
    folded.key_lengths = index(given.key_lengths);
    return folded;
  }

  /// A result of the folded scores' shape.
  at::Tensor unfold(const at::Tensor& result) const {
    std::vector<c10::SymInt> sizes = sizes_;
    sizes.insert(sizes.begin(), vmap_.layer().batchSize());
    return vmap_.batched(result.view_symint(sizes));
  }

 private:
  OptionalTensor index(const OptionalTensor& given) const {
    return given.has_value() ? OptionalTensor(vmap_.in_front(*given).flatten(0, 1)) : std::nullopt;
  }

  OptionalTensor mask(const OptionalTensor& given) const {
    if (!given.has_value()) {
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
    at::Tensor front = vmap_.in_front(*given).reshape_symint(sizes);
    if (!has_batch()) {
      return front;
    }
    sizes[1] = sizes_[0];
    return front.expand_symint(sizes).flatten(0, 1);
  }

  bool has_batch() const { return sizes_.size() > 2; }

  Vmap vmap_;
  std::vector<c10::SymInt> sizes_;  // of the scores, without the vmapped dimension
};

struct MaskedForward
    : Calls<MaskedForward, at::Tensor(const at::Tensor&, double, const MaskArguments&)> {
  static constexpr const char* kName = "scaled_masked_softmax";

  static at::Tensor batched(const at::Tensor& scores, double scale, const MaskArguments& masks) {
    check_masks(kName, scores, masks);
    const Fold fold(scores);
    return fold.unfold(call(fold.scores(scores), scale, fold.masks(masks)));
  }
};

struct MaskedBackward : Calls<MaskedBackward, at::Tensor(const at::Tensor&, const at::Tensor&,
                                                         double, const MaskArguments&)> {
  static constexpr const char* kName = "_scaled_masked_softmax_backward";

  static at::Tensor batched(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                            const MaskArguments& masks) {
    check_masks(kName, output, masks);
    check_alike(kName, "grad_output", grad_output, output);
    const Fold fold(output);
    return fold.unfold(
        call(fold.scores(grad_output), fold.scores(output), scale, fold.masks(masks)));
  }
};

WARPFUSE_LIBRARY_IMPL(FuncTorchBatched, m) {
  m.impl(MaskedForward::kName, TORCH_FN(kernel_of<&MaskedForward::batched>));
  m.impl(MaskedBackward::kName, TORCH_FN(kernel_of<&MaskedBackward::batched>));
}

}  // namespace
}  // namespace warpfuse
