#pragma once

#include <algorithm>
#include <limits>

#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

/// The temperature as kernels use it, with numbers that are neither zero nor infinite, so that
/// neither 0 * inf nor -inf * 0 comes up.
template <typename C>
struct Temperature {
  C log2_scale;  // log2(e) / temperature
  C inverse;
};

template <typename C>
Temperature<C> make_temperature(double temperature) {
  const auto bounded = [](double value) {
    return std::clamp(static_cast<C>(value), std::numeric_limits<C>::min(),
                      std::numeric_limits<C>::max());
  };
  return {bounded(1.44269504088896340736 / temperature), bounded(1 / temperature)};
}

__device__ __forceinline__ double fast_exp2(double exponent) { return exp2(exponent); }

/// What some columns of a row add up to. Kept as it is found: `sum` in units of 2^(scale * max).
template <typename C, bool kEntropy>
struct Summary {
  C max;       // of the logits; -inf where there are none
  C sum;       // of 2^d, d = scale * (x - reference(max))
  C weighted;  // of 2^d * d; with kEntropy alone

  __device__ static Summary nothing() { return {negative_infinity<C>(), C(0), C(0)}; }

  /// Of a row that is not read: its statistics are zeros.
  __device__ static Summary of_ignored() { return {C(0), C(1), C(0)}; }

  /// What exponents are relative to: the maximum, or zero where that is infinite, so that -inf
  /// logits give zeros and +inf ones an infinite sum.
  __device__ static C reference(C max) { return isinf(max) ? C(0) : max; }

  /// The least exponent that takes part in the weighted sum. Its power is zero, as is that of -inf,
  /// which times zero would be NaN.
  __device__ static C bounded(C exponent) { return fmax(exponent, C(-1e30)); }

  __device__ static Summary join(const Summary& a, const Summary& b, C scale) {
    Summary result = nothing();
    result.max = larger(a.max, b.max);
    result.add(a, scale);
    result.add(b, scale);
    return result;
  }

  /// Adds another, whose maximum is no greater. Each multiplication is part of an addition, by
  /// name: were it the compiler's choice, kernels might differ in the last bit.
  __device__ void add(const Summary& other, C scale) {
    const C d = (other.max - reference(max)) * scale;
    const C factor = fast_exp2(d);
    sum = fma(other.sum, factor, sum);
    if constexpr (kEntropy) {
      weighted = fma(fma(other.sum, bounded(d), other.weighted), factor, weighted);
    }
  }
};

}  // namespace warpfuse::cuda
