#pragma once

#include <algorithm>
#include <limits>
#include <numbers>

#include "fused_logprob/fused_logprob.h"
#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

// What forward and backward share about a row.

/// The temperature as factors, clamped to normal numbers: neither 0 * inf nor -inf * 0 occurs.
template <typename C>
struct Temperature {
  C log2_scale;  // log2(e) / temperature
  C inverse;

  explicit Temperature(double temperature)
      : log2_scale(clamped(std::numbers::log2e / temperature)), inverse(clamped(1 / temperature)) {}

 private:
  static C clamped(double value) {
    using Limits = std::numeric_limits<C>;
    return std::clamp(static_cast<C>(value), Limits::min(), Limits::max());
  }
};

__device__ __forceinline__ double fast_exp2(double exponent) { return exp2(exponent); }

/// Columns of a row, reduced. Exponents are d = scale * (x - exp_base(max)), scale = log2(e) / T.
template <typename C, bool kEntropy>
struct LogprobPartial {
  C max;       // of the logits; -inf for no columns
  C sum;       // of 2^d
  C weighted;  // of 2^d * d; only with kEntropy

  __device__ static LogprobPartial empty() { return {negative_infinity<C>(), C(0), C(0)}; }

  /// An ignored row, which is not read: its statistics become zeros.
  __device__ static LogprobPartial ignored() { return {C(0), C(1), C(0)}; }

  /// The maximum, or 0 for an infinite one: logits of -inf then add 0, and +inf makes the sum
  /// infinite.
  __device__ static C exp_base(C max) { return isinf(max) ? C(0) : max; }

  /// The exponent as a weight. Clamped where 2^d is 0: 0 * -inf would be NaN.
  __device__ static C clamped(C exponent) { return fmax(exponent, C(-1e4)); }

  __device__ static LogprobPartial merge(const LogprobPartial& a, const LogprobPartial& b,
                                         C scale) {
    LogprobPartial result = empty();
    result.max = larger(a.max, b.max);
    result.add(a, scale);
    result.add(b, scale);
    return result;
  }

  /// Adds a partial whose maximum is no greater. Products and sums are written as fma: contraction
  /// by the compiler could differ between kernels in the last bit.
  __device__ void add(const LogprobPartial& other, C scale) {
    const C d = (other.max - exp_base(max)) * scale;
    const C factor = fast_exp2(d);
    sum = fma(other.sum, factor, sum);
    if constexpr (kEntropy) {
      weighted = fma(fma(other.sum, clamped(d), other.weighted), factor, weighted);
    }
  }
};

/// Writes the results of a row. `logit` is the target's, if the target is a column.
template <typename C, bool kEntropy>
__device__ void write_row(const FusedLogprobArguments& arguments, int64_t row,
                          const RowTarget& target, C logit,
                          const LogprobPartial<C, kEntropy>& total,
                          const Temperature<C>& temperature) {
  constexpr C kNaN = static_cast<C>(NAN);
  const C log_sum = logarithm(total.sum);
  // An infinite maximum makes all results NaN but lse.
  const C log_divisor = isinf(total.max) ? kNaN : log_sum;
  C logprob = kNaN;
  if (target.kind == RowTarget::column) {
    // Not y - lse: the difference of two large numbers would lose the fraction.
    logprob = (logit - total.max) * temperature.inverse - log_divisor;
  } else if (target.kind == RowTarget::ignored) {
    logprob = 0;
  } else if (target.kind == RowTarget::other_shard) {
    logprob = negative_infinity<C>();
  }
  static_cast<C*>(arguments.logprob)[row] = logprob;
  if (arguments.lse != nullptr) {
    static_cast<C*>(arguments.lse)[row] =
        LogprobPartial<C, kEntropy>::exp_base(total.max) * temperature.inverse + log_sum;
  }
  if (arguments.statistics != nullptr) {
    static_cast<C*>(arguments.statistics)[2 * row] = total.max;
    static_cast<C*>(arguments.statistics)[2 * row + 1] = log_divisor;
  }
  if constexpr (kEntropy) {
    static_cast<C*>(arguments.entropy)[row] =
        target.kind == RowTarget::ignored ? C(0)
        : target.kind == RowTarget::invalid
            ? kNaN
            : log_divisor - std::numbers::ln2_v<C> * (total.weighted / total.sum);
  }
}

}  // namespace warpfuse::cuda
