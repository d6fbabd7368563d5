#include "fused_logprob/fused_logprob_kernel_cpu.h"

#include <algorithm>
#include <cmath>

#include "fused_logprob/logprob_target_cpu.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

constexpr int64_t kColumns = kLogprobPartColumns;

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

}  // namespace warpfuse::WARPFUSE_ISA
