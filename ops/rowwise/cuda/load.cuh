#pragma once

#include "rowwise/cuda/mask.cuh"

namespace warpfuse::cuda {

/// A Load functor makes scores of kCount neighbouring elements, the first of them at `column`; -inf
/// outside the visible interval. full: all lie in it. One that kAlters changes the elements first,
/// within their type, by what its `drop` has drawn for them; the scores of one that
/// kScales are to be multiplied by scale_of_exponent() yet.

/// Scores as they are.
template <typename T, typename Mask_ = NoMask>
struct PlainLoad {
  using Element = T;
  using Mask = Mask_;
  static constexpr bool kPlain = true;
  static constexpr bool kAlters = false;
  static constexpr bool kScales = false;
  using Drawn = NothingDrawn;
  Mask mask;

  template <int kCount>
  __device__ void scores(const typename Mask::Row&, int64_t, bool, Compute<T> (&)[kCount],
                         bool&) const {}
};

/// Scores times scale, with the mask.
template <typename T, bool kTensor, typename Mask_ = KeyMask<T, kTensor>>
struct MaskedLoad {
  using Element = T;
  using Mask = Mask_;
  static constexpr bool kPlain = false;
  static constexpr bool kAlters = false;
  static constexpr bool kScales = false;
  using Drawn = NothingDrawn;
  Mask mask;
  Compute<T> scale;

  template <int kCount>
  __device__ void scores(const typename Mask::Row& row, int64_t column, bool full,
                         Compute<T> (&values)[kCount], bool& visible) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= scale;
    }
    if constexpr (kTensor) {
      mask.apply(row, column, full, values, visible);
    }
    if (!full) {
      const int first = static_cast<int>(max(row.begin - column, int64_t{-1}));
      const int last = static_cast<int>(min(row.end - column, static_cast<int64_t>(kCount)));
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (i < first || i >= last) {
          values[i] = lowest<Compute<T>>();
        }
      }
    }
  }
};

}  // namespace warpfuse::cuda
