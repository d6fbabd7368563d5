#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "fused_logprob/fused_logprob.h"
#include "fused_logprob/logprob_gradient_cpu.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// Calls function(T(), std::bool_constant<flag>()).
template <typename Function>
void dispatch_with(DType dtype, bool flag, const Function& function) {
  dispatch(dtype, [&](auto zero) {
    flag ? function(zero, std::true_type()) : function(zero, std::false_type());
  });
}

// --- forward ----------------------------------------------------------------------------------

template <typename T>
struct Row {
  const T* x;  // [columns]
  RowTarget target;
  bool is_read;  // false: no result depends on its logits

  Row(const FusedLogprobArguments& arguments, int64_t row)
      : x(static_cast<const T*>(arguments.logits) + arguments.layout.offset(row)),
        target(arguments.targets, arguments.layout.columns, row),
        is_read(target.kind != RowTarget::ignored || arguments.lse != nullptr) {}
};

/// Reduces parts of rows.
template <typename T, bool kEntropy>
class PartReducer {
 public:
  explicit PartReducer(const FusedLogprobArguments& arguments)
      : columns_(arguments.layout.columns),
        inverse_(inverse_of<C>(arguments.temperature)),
        powers_(kEntropy ? kLogprobPartColumns : 0) {}

  /// Reduces the part of `row` that starts at `column`, and prefetches `next` meanwhile.
  LogprobPart operator()(const T* row, int64_t column, const T* next) const {
    const T* x = row + column;
    const int64_t count = std::min(kLogprobPartColumns, columns_ - column);
    const C max = max_of<T>(count, [&](int64_t i, int64_t n) { return load(x + i, n); });
    // With a base of 0, -inf throughout gives a sum of 0, and +inf one of +inf.
    const P base(std::isinf(max) ? C(0) : max);
    const P inverse(inverse_);
    const auto scaled = [&](int64_t i, int64_t n) { return (load(x + i, n) - base) * inverse; };
    C* const powers = powers_.data();
    LogprobPart part{max, 0.0, 0.0};
    part.sum = sum_of<T>(count, [&](int64_t i, int64_t n) {
      __builtin_prefetch(next + i);
      const P power = exponential(scaled(i, n));
      if constexpr (kEntropy) {
        power.store(powers + i);
      }
      return power;
    });
    if constexpr (kEntropy) {
      const P lowest(std::numeric_limits<C>::lowest());  // finite: 0 * -inf would be NaN
      part.weighted = sum_of<T>(count, [&](int64_t i, int64_t n) {
        return P::loadu(powers + i) * larger(lowest, scaled(i, n));
      });
    }
    return part;
  }

 private:
  using C = Compute<T>;
  using P = Pack<T>;

  int64_t columns_;
  C inverse_;
  Scratch<T> powers_;  // a part's exponentials, whole packs
};

/// Merges the part to the right of `row` into it.
void merge(LogprobPart& row, const LogprobPart& part, double temperature) {
  const auto rescaled = [&](const LogprobPart& old, double max) {
    if (old.max == max) {
      return old;
    }
    const double y = (old.max - max) / temperature;
    const double power = std::exp(y);
    // y is clamped where its power is 0: 0 * -inf would be NaN.
    return LogprobPart{max, old.sum * power, (old.weighted + std::max(y, -1e6) * old.sum) * power};
  };
  const double max = std::max(row.max, part.max);
  row = rescaled(row, max);
  const LogprobPart other = rescaled(part, max);
  row.sum += other.sum;
  row.weighted += other.weighted;
}

template <typename T>
void write_row(const FusedLogprobArguments& arguments, int64_t index, const Row<T>& row,
               const LogprobPart& total) {
  using C = Compute<T>;
  const double log_sum = std::log(total.sum);
  const bool infinite = std::isinf(total.max);
  const double log_divisor = infinite ? std::numeric_limits<double>::quiet_NaN() : log_sum;
  double logprob = -std::numeric_limits<double>::infinity();  // of another shard's target
  double entropy = log_divisor - total.weighted / total.sum;
  if (row.target.kind == RowTarget::column) {
    const auto logit = static_cast<double>(row.x[row.target.index]);
    logprob = (logit - total.max) / arguments.temperature - log_divisor;
  } else if (row.target.kind == RowTarget::ignored) {
    logprob = entropy = 0;
  }
  const auto write = [&](void* results, int64_t place, double value) {
    if (results != nullptr) {
      static_cast<C*>(results)[place] = static_cast<C>(value);
    }
  };
  write(arguments.logprob, index, logprob);
  write(arguments.lse, index, infinite ? log_sum : total.max / arguments.temperature + log_sum);
  write(arguments.entropy, index, entropy);
  write(arguments.statistics, 2 * index, total.max);
  write(arguments.statistics, 2 * index + 1, log_divisor);
}

/// Writes the results of rows [begin, end); part_at(row, index, part) gives their reduced parts.
template <typename T, typename PartAt>
void write_rows(const FusedLogprobArguments& arguments, int64_t begin, int64_t end,
                const PartAt& part_at) {
  for (int64_t index = begin; index < end; ++index) {
    const Row<T> row(arguments, index);
    LogprobPart total{0.0, 1.0, 0.0};  // gives zeros as the statistics of a row that is not read
    if (row.is_read) {
      total = part_at(row, index, 0);
      for (int64_t part = 1; part * kLogprobPartColumns < arguments.layout.columns; ++part) {
        merge(total, part_at(row, index, part), arguments.temperature);
      }
    }
    write_row(arguments, index, row, total);
  }
}

template <typename T, bool kEntropy>
void forward_rows(const FusedLogprobArguments& arguments, int64_t begin, int64_t end) {
  const PartReducer<T, kEntropy> reduce(arguments);
  write_rows<T>(arguments, begin, end, [&](const Row<T>& row, int64_t index, int64_t part) {
    const int64_t column = part * kLogprobPartColumns, after = column + kLogprobPartColumns;
    const T* next = after < arguments.layout.columns
                        ? row.x + after
                        : static_cast<const T*>(arguments.logits) +
                              arguments.layout.offset(std::min(index + 1, end - 1));
    return reduce(row.x, column, next);
  });
}

template <typename T, bool kEntropy>
void forward_parts(const LogprobParts<FusedLogprobArguments>& in, int64_t begin, int64_t end) {
  const PartReducer<T, kEntropy> reduce(in.arguments);
  for (int64_t part = begin; part < end; ++part) {
    const Row<T> row(in.arguments, part / in.parts_per_row);
    const int64_t column = part % in.parts_per_row * kLogprobPartColumns;
    if (row.is_read) {
      in.parts[part] = reduce(row.x, column, row.x + column);
    }
  }
}

// --- backward ---------------------------------------------------------------------------------

template <typename T, bool kEntropy>
void backward_parts(const LogprobParts<FusedLogprobBackwardArguments>& in, int64_t begin,
                    int64_t end) {
  const auto& arguments = in.arguments;
  const int64_t columns = arguments.layout.columns;
  for (int64_t part = begin; part < end; ++part) {
    const int64_t row = part / in.parts_per_row;
    const int64_t column = part % in.parts_per_row * in.part_columns;
    write_gradients<T, kEntropy>(
        RowGradient<Compute<T>>(arguments, row),
        static_cast<const T*>(arguments.logits) + arguments.layout.offset(row),
        static_cast<T*>(arguments.grad_logits) + arguments.grad_layout.offset(row), column,
        std::min(in.part_columns, columns - column));
  }
}

}  // namespace

// --- entry points -----------------------------------------------------------------------------

void fused_logprob_rows_cpu(const FusedLogprobArguments& arguments, int64_t begin, int64_t end) {
  dispatch_with(arguments.dtype, arguments.entropy != nullptr, [&](auto zero, auto entropy) {
    forward_rows<decltype(zero), entropy.value>(arguments, begin, end);
  });
}

void fused_logprob_parts_cpu(const LogprobParts<FusedLogprobArguments>& in, int64_t begin,
                             int64_t end) {
  dispatch_with(in.arguments.dtype, in.arguments.entropy != nullptr, [&](auto zero, auto entropy) {
    forward_parts<decltype(zero), entropy.value>(in, begin, end);
  });
}

void fused_logprob_merge_cpu(const LogprobParts<FusedLogprobArguments>& in, int64_t begin,
                             int64_t end) {
  dispatch(in.arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    write_rows<T>(in.arguments, begin, end, [&](const Row<T>&, int64_t index, int64_t part) {
      return in.parts[index * in.parts_per_row + part];
    });
  });
}

void fused_logprob_backward_cpu(const LogprobParts<FusedLogprobBackwardArguments>& in,
                                int64_t begin, int64_t end) {
  dispatch_with(in.arguments.dtype, in.arguments.grad_entropy != nullptr,
                [&](auto zero, auto entropy) {
                  backward_parts<decltype(zero), entropy.value>(in, begin, end);
                });
}

}  // namespace warpfuse::WARPFUSE_ISA
