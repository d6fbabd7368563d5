#pragma once

#include "rowwise/cuda/mask.cuh"

namespace warpfuse::cuda {

// Loads: from elements to scores.
//
// A Load's scores() makes scores of kCount neighbouring elements, the first of them at `column`,
// and score() one of an element inside the interval and its mask's. Hidden ones become -inf, and
// `visible` is set where the mask tensor shows one. full: all elements are inside the row's
// interval. A Load may have exponent_scale(), a factor of all exponents, and power_of_two(), the
// greatest that is no greater, which a factor of at most 1 does not need. With kDropout it has
// both, and a `dropout` that elements are multiplied by first. Without it, reader() is one Load for
// all that make the same scores: what is done with them later does not matter to who reads them.

/// Scores outside the row's interval become -inf. The first of them is at `column`.
template <int kCount, typename Row, typename C>
__device__ __forceinline__ void hide_outside(const Row& row, int64_t column, C (&values)[kCount]) {
  const int first = static_cast<int>(max(row.begin - column, int64_t{-1}));
  const int last = static_cast<int>(min(row.end - column, static_cast<int64_t>(kCount)));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < first || i >= last) {
      values[i] = negative_infinity<C>();
    }
  }
}

template <typename T, typename Mask>
struct ScaledLoad;

/// Scores as they are, for masks without a tensor.
template <typename T, typename Mask_ = NoMask>
struct PlainLoad {
  using Element = T;
  using Mask = Mask_;
  using KeepMask = NoKeepMask;
  static constexpr bool kPlain = true;  // scores are values of T
  static constexpr bool kDropout = false;
  Mask mask;

  template <int kCount>
  __device__ void scores(const typename Mask::Row& row, int64_t column, bool full,
                         Compute<T> (&values)[kCount], bool&) const {
    if (Mask::kRules && !full) {
      hide_outside(row, column, values);
    }
  }
  __device__ void score(const MaskElement<Compute<T>>&, Compute<T>&, bool&) const {}

  auto reader() const
    requires(!Mask::kRules)
  {
    return ScaledLoad<T, NoMask>(Compute<T>(1));
  }
};

/// Whether a scale may multiply differences of scores: they overflow only where their exponential
/// is 0 after the scale too.
inline bool scales_differences(double scale) { return scale >= 0x1p-120 && scale <= 1; }

/// Scores times `scale`, which is a factor of the exponents where scales_differences(scale).
template <typename T, typename Mask = NoMask>
struct ScaledLoad : PlainLoad<T, Mask> {
  Compute<T> scale;

  explicit ScaledLoad(Compute<T> scale, const Mask& mask = {})
      : PlainLoad<T, Mask>{mask}, scale(scale) {}
  __device__ Compute<T> exponent_scale() const { return scale; }
  ScaledLoad reader() const { return *this; }
};

/// Scores times `scale`, with the mask.
template <typename T, bool kTensor, typename Mask_ = KeyMask<T, kTensor>>
struct MaskedLoad {
  using Element = T;
  using Mask = Mask_;
  using KeepMask = NoKeepMask;
  static constexpr bool kPlain = false;
  static constexpr bool kDropout = false;
  Mask mask;
  Compute<T> scale;

  template <int kCount, typename... MaskPacks>
  __device__ void scores(const typename Mask::Row& row, int64_t column, bool full,
                         Compute<T> (&values)[kCount], bool& visible,
                         const MaskPacks&... mask_pack) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= scale;
    }
    if constexpr (kTensor) {
      mask.apply(row, column, full, mask_pack..., values, visible);
    }
    if (!full) {
      hide_outside(row, column, values);
    }
  }

  __device__ void score(const MaskElement<Compute<T>>& mask_element, Compute<T>& value,
                        bool& visible) const {
    value *= scale;
    if constexpr (kTensor) {
      mask.apply(mask_element, value, visible);
    }
  }

  MaskedLoad<T, kTensor> reader() const { return {mask, scale}; }
};

}  // namespace warpfuse::cuda
