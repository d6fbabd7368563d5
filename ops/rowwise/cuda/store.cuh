#pragma once

#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// A Store functor says what becomes of a score x of type T when the row's maximum m and its sum s
/// of exp(x - m), both exponentials in units of kExponentialUnit<T>, are known. One that kFinishes
/// also has note(row, m, s, empty), called once or more a row, and finish(drawn, zero, values) for
/// neighbouring results, by what its `drop` has drawn for them; zero is 0 times any of the row.

/// exp(x - m) / s
template <typename T>
struct ProbabilityStore {
  static constexpr bool kKeepsExponential = true;  // value() takes exp(x - m) in place of x
  static constexpr bool kFinishes = false;
  using Drawn = NothingDrawn;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return C(1) / sum; }
  __device__ static C value(C exponential_of_x, C, C factor) { return exponential_of_x * factor; }
};

/// (x - m) - log s
template <typename T>
struct LogProbabilityStore {
  static constexpr bool kKeepsExponential = false;
  static constexpr bool kFinishes = false;
  using Drawn = NothingDrawn;

  using C = Compute<T>;

  __device__ static C factor(C sum) { return logarithm(sum / kExponentialUnit<T>); }
  __device__ static C value(C x, C max, C factor) { return (x - max) - factor; }
};

}  // namespace warpfuse::cuda
