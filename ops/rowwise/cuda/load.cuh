#pragma once

#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A Load functor makes scores of the bits of one pack, -inf outside the visible interval.

/// Scores as they are.
template <typename T>
struct PlainLoad {
  using Element = T;
  using Mask = NoMask;
  NoMask mask;

  __device__ void scores(const PackedRow<T>& layout, const NoMask::Row& interval, int pack,
                         Compute<T> (&values)[kPack<T>], bool&) const {
    if (!layout.full(pack)) {
      keep_interval<T>(layout.column(pack), interval.begin, interval.end, lowest<Compute<T>>(),
                       values);
    }
  }
};

/// Scores times scale, with the mask.
template <typename T, bool kTensor>
struct MaskedLoad {
  using Element = T;
  using Mask = KeyMask<T, kTensor>;
  Mask mask;
  Compute<T> scale;

  __device__ void scores(const PackedRow<T>& layout, const typename Mask::Row& interval, int pack,
                         Compute<T> (&values)[kPack<T>], bool& visible) const {
    const int64_t column = layout.column(pack);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      values[i] *= scale;
    }
    const bool full = layout.full(pack);
    if constexpr (kTensor) {
      mask.apply(interval, column, full, values, visible);
    }
    if (!full) {
      keep_interval<T>(column, interval.begin, interval.end, lowest<Compute<T>>(), values);
    }
  }
};

}  // namespace warpfuse::cuda
