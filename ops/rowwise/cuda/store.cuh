#pragma once

#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A Store functor says what becomes of a score x when the row's maximum m and its sum s of
/// exp(x - m) are known.

/// exp(x - m) / s
struct ProbabilityStore {
  static constexpr bool kKeepsExponential = true;  // value() takes exp(x - m) in place of x

  template <typename C>
  __device__ static C factor(C sum) {
    return C(1) / sum;
  }
  template <typename C>
  __device__ static C value(C exponential_of_x, C, C factor) {
    return exponential_of_x * factor;
  }
};

/// (x - m) - log s
struct LogProbabilityStore {
  static constexpr bool kKeepsExponential = false;

  template <typename C>
  __device__ static C factor(C sum) {
    return logarithm(sum);
  }
  template <typename C>
  __device__ static C value(C x, C max, C factor) {
    return (x - max) - factor;
  }
};

}  // namespace warpfuse::cuda
