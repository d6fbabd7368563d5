#include "fused_logprob/fused_logprob_kernel_cpu.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

constexpr int64_t kColumns = kLogprobPartColumns;

// --- targets and temperature ------------------------------------------------------------------

constexpr int64_t kIgnored = -1;
constexpr int64_t kElsewhere = -2;  // in another shard

// The column of a row's target, kIgnored or kElsewhere.
int64_t target_column(const LogprobTargets& targets, int64_t columns, int64_t row) {
  const int64_t target = targets.wide ? static_cast<const int64_t*>(targets.data)[row]
                                      : static_cast<const int32_t*>(targets.data)[row];
  if (target == targets.ignore_index) {
    return kIgnored;
  }
  const bool inside = target >= targets.vocab_start && target - targets.vocab_start < columns;
  return inside ? target - targets.vocab_start : kElsewhere;
}

// 1 / temperature, kept where 0 and -inf times it are still 0 and -inf.
template <typename C>
C inverse_of(double temperature) {
  return std::clamp(static_cast<C>(1 / temperature), std::numeric_limits<C>::min(),
                    std::numeric_limits<C>::max());
}

// --- the reduction ----------------------------------------------------------------------------

/// Reduces x[0, count). `next`: what is read after it, fetched meanwhile. kWeighted: `powers` has
/// room for whole packs.
template <typename T, bool kWeighted>
LogprobPart reduce(const T* x, int64_t count, Compute<T> inverse_temperature, Compute<T>* powers,
                   const T* next) {
  using C = Compute<T>;
  using P = Pack<T>;
  const C max = max_of<T>(count, [&](int64_t i, int64_t n) { return load(x + i, n); });
  // Of -inf alone a sum of 0, with +inf one of +inf, and NaN with NaN.
  const P shift(std::isinf(max) ? C(0) : max);
  const P inverse(inverse_temperature);
  const auto scaled = [&](int64_t i, int64_t n) { return (load(x + i, n) - shift) * inverse; };
  LogprobPart part{max, 0.0, 0.0};
  part.sum = sum_of<T>(count, [&](int64_t i, int64_t n) {
    __builtin_prefetch(next + i);
    const P power = exponential(scaled(i, n));
    if constexpr (kWeighted) {
      power.store(powers + i);
    }
    return power;
  });
  if constexpr (kWeighted) {
    const P lowest(std::numeric_limits<C>::lowest());  // 0 times it is 0
    part.weighted = sum_of<T>(count, [&](int64_t i, int64_t n) {
      return P::loadu(powers + i) * larger(lowest, scaled(i, n));
    });
  }
  return part;
}

/// `row` with the part behind it.
void join(LogprobPart& row, const LogprobPart& part, double temperature) {
  const auto rescaled = [&](const LogprobPart& old, double max) {
    if (old.max == max) {
      return old;
    }
    const double y = (old.max - max) / temperature;
    const double power = std::exp(y);
    // A product of 0 and -inf must not come of what adds nothing.
    return LogprobPart{max, old.sum * power, (old.weighted + std::max(y, -1e6) * old.sum) * power};
  };
  const double max = std::max(row.max, part.max);
  row = rescaled(row, max);
  const LogprobPart other = rescaled(part, max);
  row.sum += other.sum;
  row.weighted += other.weighted;
}

// --- results ----------------------------------------------------------------------------------

/// The results of a row: `element` is its target's logit.
template <typename C>
void write_row(const FusedLogprobArguments& arguments, int64_t row, int64_t target, double element,
               const LogprobPart& reduced) {
  const double log_sum = std::log(reduced.sum);
  const bool infinite = std::isinf(reduced.max);
  const double log_divisor = infinite ? std::numeric_limits<double>::quiet_NaN() : log_sum;
  const auto write = [&](void* results, double value) {
    if (results != nullptr) {
      static_cast<C*>(results)[row] = static_cast<C>(value);
    }
  };
  const double logprob = target == kElsewhere
                             ? -std::numeric_limits<double>::infinity()
                             : (element - reduced.max) / arguments.temperature - log_divisor;
  write(arguments.logprob, target == kIgnored ? 0.0 : logprob);
  write(arguments.lse, infinite ? log_sum : reduced.max / arguments.temperature + log_sum);
  write(arguments.entropy, target == kIgnored ? 0.0 : log_divisor - reduced.weighted / reduced.sum);
  if (arguments.statistics != nullptr) {
    static_cast<C*>(arguments.statistics)[2 * row] = static_cast<C>(reduced.max);
    static_cast<C*>(arguments.statistics)[2 * row + 1] = static_cast<C>(log_divisor);
  }
}

/// A row that is ignored and whose lse is not asked for: its logits are not read.
template <typename C>
void write_ignored_row(const FusedLogprobArguments& arguments, int64_t row) {
  write_row<C>(arguments, row, kIgnored, 0.0, {0.0, 1.0, 0.0});
}

template <typename T>
struct Row {
  const T* x;
  int64_t target;
  bool reduced;  // else its logits are not read

  Row(const FusedLogprobArguments& arguments, int64_t row)
      : x(static_cast<const T*>(arguments.logits) + arguments.layout.offset(row)),
        target(target_column(arguments.targets, arguments.layout.columns, row)),
        reduced(target != kIgnored || arguments.lse != nullptr) {}

  double element() const { return target >= 0 ? static_cast<double>(x[target]) : 0.0; }
};

template <typename T, bool kWeighted>
void forward_rows(const FusedLogprobArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t columns = arguments.layout.columns;
  const C inverse = inverse_of<C>(arguments.temperature);
  const Scratch<T> powers(kWeighted ? kColumns : 0);
  for (int64_t index = begin; index < end; ++index) {
    const Row<T> row(arguments, index);
    if (!row.reduced) {
      write_ignored_row<C>(arguments, index);
      continue;
    }
    LogprobPart reduced{};
    for (int64_t column = 0; column < columns; column += kColumns) {
      const int64_t after = column + kColumns;
      const T* next = after < columns ? row.x + after
                                      : static_cast<const T*>(arguments.logits) +
                                            arguments.layout.offset(std::min(index + 1, end - 1));
      const LogprobPart part = reduce<T, kWeighted>(
          row.x + column, std::min(kColumns, columns - column), inverse, powers.data(), next);
      if (column == 0) {
        reduced = part;
      } else {
        join(reduced, part, arguments.temperature);
      }
    }
    write_row<C>(arguments, index, row.target, row.element(), reduced);
  }
}

template <typename T, bool kWeighted>
void forward_parts(const LogprobInParts<FusedLogprobArguments>& in, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t columns = in.arguments.layout.columns;
  const C inverse = inverse_of<C>(in.arguments.temperature);
  const Scratch<T> powers(kWeighted ? kColumns : 0);
  for (int64_t part = begin; part < end; ++part) {
    const Row<T> row(in.arguments, part / in.parts_per_row);
    const int64_t column = part % in.parts_per_row * kColumns;
    const T* x = row.x + column;
    const int64_t count = std::min(kColumns, columns - column);
    if (row.reduced) {
      in.parts[part] = reduce<T, kWeighted>(x, count, inverse, powers.data(), x);
    }
  }
}

template <typename T>
void join_rows(const LogprobInParts<FusedLogprobArguments>& in, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (int64_t index = begin; index < end; ++index) {
    const Row<T> row(in.arguments, index);
    if (!row.reduced) {
      write_ignored_row<C>(in.arguments, index);
      continue;
    }
    const LogprobPart* parts = in.parts + index * in.parts_per_row;
    LogprobPart reduced = parts[0];
    for (int64_t i = 1; i < in.parts_per_row; ++i) {
      join(reduced, parts[i], in.arguments.temperature);
    }
    write_row<C>(in.arguments, index, row.target, row.element(), reduced);
  }
}

// --- gradients --------------------------------------------------------------------------------

/// What a row's gradients are made of:
///   dx = (grad_lse - grad_logprob) * p - grad_entropy * p * (log p + entropy), plus grad_logprob
///   at
/// the target, all over the temperature.
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
    zero = !has_logprob && !has_entropy && (a.grad_lse == nullptr || max == kLowest<C>);
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
  const int64_t part_columns = parts_per_row == 1 ? columns : kColumns;
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

/// Calls function(T(), std::bool_constant<flag>()).
template <typename Function>
void dispatch_with(DType dtype, bool flag, const Function& function) {
  dispatch(dtype, [&](auto zero) {
    flag ? function(zero, std::true_type()) : function(zero, std::false_type());
  });
}

}  // namespace

// --- entry points -----------------------------------------------------------------------------

void fused_logprob_rows_cpu(const FusedLogprobArguments& arguments, int64_t begin, int64_t end) {
  dispatch_with(arguments.dtype, arguments.entropy != nullptr, [&](auto zero, auto weighted) {
    forward_rows<decltype(zero), weighted.value>(arguments, begin, end);
  });
}

void fused_logprob_parts_cpu(const LogprobInParts<FusedLogprobArguments>& in, int64_t begin,
                             int64_t end) {
  dispatch_with(in.arguments.dtype, in.arguments.entropy != nullptr, [&](auto zero, auto weighted) {
    forward_parts<decltype(zero), weighted.value>(in, begin, end);
  });
}

void fused_logprob_join_cpu(const LogprobInParts<FusedLogprobArguments>& in, int64_t begin,
                            int64_t end) {
  dispatch(in.arguments.dtype, [&](auto zero) { join_rows<decltype(zero)>(in, begin, end); });
}

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
