#pragma once

#include "ms_deform_attn/deform_rows.cuh"

namespace warpfuse::cuda {

/// Weights of a row's points: the given ones, or their softmax.
template <typename T>
class RowWeights {
  using C = Compute<T>;

 public:
  /// All lanes of the warp call it, each group of `lanes.row()` for its row.
  __device__ RowWeights(const MsDeformAttnInputs& in, const DeformLanes& lanes, bool exists,
                        int64_t row)
      : in_(in), lanes_(lanes) {
    if (in.softmax) {
      count_ = exists ? static_cast<int>(in.sizes.row_points()) : 0;
      first_ = row * in.sizes.row_points();
      C max = negative_infinity<C>();
      for (int i = lanes.row().rank(); i < count_; i += lanes.row_lanes()) {
        max = larger(max, raw(first_ + i));
      }
      max_ = lanes.row().max(max);
    }
  }

  /// The weight at attention_weights[index], which is one of the row, or exp(logit - max).
  __device__ C unnormalised(int64_t index) const {
    const C weight = raw(index);
    return in_.softmax ? exp(weight - max_) : weight;
  }

  /// Normalises a softmax by `sum`, this lane's part of the sum of the row's unnormalised weights.
  /// All lanes of the warp call it. Returns the factor.
  __device__ C normalise(C sum) {
    if (in_.softmax) {
      scale_ = 1 / lanes_.row().sum(sum);
    }
    return scale_;
  }
  /// The same where the sum is not known.
  __device__ void normalise() {
    C sum = 0;
    for (int i = lanes_.row().rank(); i < count_; i += lanes_.row_lanes()) {
      sum += unnormalised(first_ + i);
    }
    normalise(sum);
  }

  /// The weight, once it is normalised.
  __device__ C at(int64_t index) const { return unnormalised(index) * scale_; }

 private:
  __device__ C raw(int64_t index) const {
    return load_as<T>(in_.attention_weights, in_.weight_dtype, index);
  }

  const MsDeformAttnInputs& in_;
  const DeformLanes& lanes_;
  int count_ = 0;  // of a softmax' logits
  int64_t first_ = 0;
  C max_ = 0, scale_ = 1;
};

}  // namespace warpfuse::cuda
