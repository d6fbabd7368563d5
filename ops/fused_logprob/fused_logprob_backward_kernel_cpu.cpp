#include <algorithm>
#include <cmath>

#include "fused_logprob/fused_logprob_kernel_cpu.h"
#include "fused_logprob/logprob_target_cpu.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// What a row's gradients are made of:
///   dx = ((grad_lse - grad_logprob) * p - grad_entropy * p * (log p + entropy)) / temperature
/// and grad_logprob / temperature more at the target.
template <typename C>
struct GradientRow {
  C max;
  C log_divisor;
  C inverse;
  C of_probability;
  C of_entropy;
  C entropy;
  double of_target;
  double temperature;
  int64_t target;
  bool zero;

  GradientRow(const FusedLogprobBackwardArguments& a, int64_t row) {
    const auto at_row = [&](const void* values) {
      return values != nullptr ? static_cast<const C*>(values)[row] : C(0);
    };
    const C* statistics = static_cast<const C*>(a.statistics) + 2 * row;
    target = target_column(a.targets, a.layout.columns, row);
    const bool counts = target != kIgnored;
    temperature = a.temperature;
    max = statistics[0];
    log_divisor = statistics[1];
    inverse = inverse_of<C>(a.temperature);
    of_target = target >= 0 ? at_row(a.grad_logprob) : C(0);
    of_probability = static_cast<C>(at_row(a.grad_lse) - of_target);
    of_entropy = counts ? at_row(a.grad_entropy) : C(0);
    entropy = counts ? at_row(a.entropy) : C(0);
    // Of a row of -inf throughout, the gradient of lse is 0; the others are NaN, by its statistics.
    const bool has_logprob = target >= 0 && a.grad_logprob != nullptr;
    const bool has_entropy = counts && a.grad_entropy != nullptr;
    zero = !has_logprob && !has_entropy && (a.grad_lse == nullptr || max == kNegativeInfinity<C>);
  }

  /// The gradient of the target's logit x, in double.
  double at_target(double x) const {
    const double log_p = (x - max) / temperature - log_divisor;
    const double p = std::exp(log_p);
    const double through_entropy =
        p == 0 ? 0 : static_cast<double>(of_entropy) * p * (log_p + entropy);
    return (of_probability * p + of_target - through_entropy) / temperature;
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

/// The gradients of the columns [column, column + count) of a row; x and dx are the row's.
template <typename T, bool kEntropy>
void gradients(const GradientRow<Compute<T>>& row, const T* x, T* dx, int64_t column,
               int64_t count) {
  using C = Compute<T>;
  using P = Pack<T>;
  if (row.zero) {
    std::fill_n(dx + column, count, T(0));
    return;
  }
  const bool has_target = row.target >= column && row.target < column + count;
  const double element = has_target ? static_cast<double>(x[row.target]) : 0.0;
  const P max(row.max);
  const P inverse(row.inverse);
  const P log_divisor(row.log_divisor);
  const P of_probability(row.of_probability);
  const P of_entropy(row.of_entropy);
  const P entropy(row.entropy);
  const P lowest(std::numeric_limits<C>::lowest());
  transform_in_place<T>(x + column, dx + column, count, [&](const P& value) {
    const P log_p = (value - max) * inverse - log_divisor;
    const P p = exponential(log_p);
    if constexpr (kEntropy) {
      return p * (of_probability - of_entropy * (larger(lowest, log_p) + entropy)) * inverse;
    } else {
      return p * of_probability * inverse;
    }
  });
  if (has_target) {
    dx[row.target] = static_cast<T>(static_cast<C>(row.at_target(element)));
  }
}

template <typename T, bool kEntropy>
void backward_parts(const FusedLogprobBackwardArguments& arguments, int64_t parts_per_row,
                    int64_t begin, int64_t end) {
  const int64_t columns = arguments.layout.columns;
  const int64_t part_columns = parts_per_row == 1 ? columns : kLogprobPartColumns;
  for (int64_t part = begin; part < end; ++part) {
    const int64_t row = part / parts_per_row;
    const int64_t column = part % parts_per_row * part_columns;
    gradients<T, kEntropy>(
        GradientRow<Compute<T>>(arguments, row),
        static_cast<const T*>(arguments.logits) + arguments.layout.offset(row),
        static_cast<T*>(arguments.grad_logits) + arguments.grad_layout.offset(row), column,
        std::min(part_columns, columns - column));
  }
}

}  // namespace

void fused_logprob_backward_rows_cpu(const FusedLogprobBackwardArguments& arguments, int64_t begin,
                                     int64_t end) {
  dispatch_with(arguments.dtype, arguments.grad_entropy != nullptr, [&](auto zero, auto entropy) {
    backward_parts<decltype(zero), entropy.value>(arguments, 1, begin, end);
  });
}

void fused_logprob_backward_parts_cpu(const LogprobInParts<FusedLogprobBackwardArguments>& in,
                                      int64_t begin, int64_t end) {
  dispatch_with(
      in.arguments.dtype, in.arguments.grad_entropy != nullptr, [&](auto zero, auto entropy) {
        backward_parts<decltype(zero), entropy.value>(in.arguments, in.parts_per_row, begin, end);
      });
}

}  // namespace warpfuse::WARPFUSE_ISA
