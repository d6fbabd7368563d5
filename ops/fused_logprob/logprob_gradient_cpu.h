#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fused_logprob/fused_logprob.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// 1 / temperature, clamped to normal numbers: 0 and -inf times it stay 0 and -inf.
template <typename C>
C inverse_of(double temperature) {
  return std::clamp(static_cast<C>(1 / temperature), std::numeric_limits<C>::min(),
                    std::numeric_limits<C>::max());
}

/// e to less than this is 0, and so is its product with a probability's logarithm: not NaN, as 0
/// times one of -inf, or one that overflows with the entropy's gradient.
template <typename C>
constexpr C kMinLogarithm = std::is_same_v<C, double> ? -750 : -105;

/// The gradient of a row's logits,
///   dx = ((grad_lse - grad_logprob) * p - grad_entropy * p * (log p + entropy)) / temperature
/// and grad_logprob / temperature more at the target.
template <typename C>
struct RowGradient {
  C max;
  C log_divisor;
  C inverse;
  C probability_factor;
  C grad_entropy;
  C entropy;
  double grad_logprob;
  double temperature;
  int64_t target;  // its column, or -1
  bool is_zero;

  RowGradient(const FusedLogprobBackwardArguments& a, int64_t row) {
    const auto at_row = [&](const void* values) {
      return values != nullptr ? static_cast<const C*>(values)[row] : C(0);
    };
    const C* statistics = static_cast<const C*>(a.statistics) + 2 * row;
    const RowTarget row_target(a.targets, a.layout.columns, row);
    const bool counts = row_target.kind != RowTarget::ignored;
    target = row_target.kind == RowTarget::column ? row_target.index : -1;
    temperature = a.temperature;
    max = statistics[0];
    log_divisor = statistics[1];
    inverse = inverse_of<C>(a.temperature);
    grad_logprob = target >= 0 ? at_row(a.grad_logprob) : C(0);
    probability_factor = static_cast<C>(at_row(a.grad_lse) - grad_logprob);
    grad_entropy = counts ? at_row(a.grad_entropy) : C(0);
    entropy = counts ? at_row(a.entropy) : C(0);
    // A row of -inf throughout has a flat lse; its statistics make the other gradients NaN.
    const bool has_logprob = target >= 0 && a.grad_logprob != nullptr;
    const bool has_entropy = counts && a.grad_entropy != nullptr;
    is_zero =
        !has_logprob && !has_entropy && (a.grad_lse == nullptr || max == kNegativeInfinity<C>);
  }

  /// The gradient of the target's logit x, in double.
  double at_target(double x) const {
    const double log_p = (x - max) / temperature - log_divisor;
    const double p = std::exp(log_p);
    const double through_entropy =
        p == 0 ? 0 : static_cast<double>(grad_entropy) * p * (log_p + entropy);
    return (probability_factor * p + grad_logprob - through_entropy) / temperature;
  }
};

/// dx[0, count) from x[0, count), which may be the same memory: the last pack overlaps the one
/// before it, so it is read before anything is written.
template <typename T, typename Map>
C10_ALWAYS_INLINE void transform_in_place(const T* x, T* dx, int64_t count, const Map& map) {
  constexpr int64_t kSize = kPackSize<T>;
  if (count < kSize) {
    store<T>(map(load(x, count)), dx, count);
    return;
  }
  const Vectorized<T> last = rounded<T>(map(load(x + count - kSize, kSize)));
#pragma GCC unroll 2
  for (int64_t i = 0; i + kSize <= count; i += kSize) {
    store<T>(map(load(x + i, kSize)), dx + i, kSize);
  }
  last.store(dx + count - kSize);
}

/// The gradients of the columns [column, column + count) of a row. x, dx: [columns].
template <typename T, bool kEntropy>
void write_gradients(const RowGradient<Compute<T>>& row, const T* x, T* dx, int64_t column,
                     int64_t count) {
  using C = Compute<T>;
  using P = Pack<T>;
  if (row.is_zero) {
    std::fill_n(dx + column, count, T(0));
    return;
  }
  const bool has_target = row.target >= column && row.target < column + count;
  const double target_logit = has_target ? static_cast<double>(x[row.target]) : 0.0;
  const P max(row.max);
  const P inverse(row.inverse);
  const P log_divisor(row.log_divisor);
  const P probability_factor(row.probability_factor);
  const P grad_entropy(row.grad_entropy);
  const P entropy(row.entropy);
  const P least(kMinLogarithm<C>);
  transform_in_place<T>(x + column, dx + column, count, [&](const P& value) {
    const P log_p = (value - max) * inverse - log_divisor;
    const P p = exponential(log_p);
    if constexpr (kEntropy) {
      return p * (probability_factor - grad_entropy * (larger(least, log_p) + entropy)) * inverse;
    } else {
      return p * probability_factor * inverse;
    }
  });
  if (has_target) {
    dx[row.target] = static_cast<T>(static_cast<C>(row.at_target(target_logit)));
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
