#pragma once

#include "fused_logprob/fused_logprob_arguments.h"
#include "fused_logprob/logprob_summary.cuh"

namespace warpfuse::cuda {

__device__ __forceinline__ int64_t row_offset(const LogitRows& layout, int64_t row) {
  if (layout.inner >= layout.rows) {
    return row * layout.inner_stride;  // saves the division
  }
  return row / layout.inner * layout.outer_stride + row % layout.inner * layout.inner_stride;
}

/// What a row's target is.
struct RowTarget {
  enum Kind { column, ignored, of_other_shard, invalid };
  Kind kind;
  int64_t index;  // of the column

  __device__ RowTarget(const LogprobTargets& targets, int64_t columns, int64_t row) {
    const int64_t target = targets.wide ? static_cast<const int64_t*>(targets.data)[row]
                                        : static_cast<const int32_t*>(targets.data)[row];
    // Unsigned, so that no target overflows; those before the shard come out past its end.
    const uint64_t of_shard =
        static_cast<uint64_t>(target) - static_cast<uint64_t>(targets.vocab_start);
    index = static_cast<int64_t>(of_shard);
    kind = target == targets.ignore_index                             ? ignored
           : target >= 0 && of_shard < static_cast<uint64_t>(columns) ? column
           : target >= 0 && targets.shard                             ? of_other_shard
                                                                      : invalid;
  }
};

/// Writes what is asked of a row. `logit` is that of its target, where that is a column.
template <typename C, bool kEntropy>
__device__ void write_row(const FusedLogprobArguments& arguments, int64_t row,
                          const RowTarget& target, C logit, const Summary<C, kEntropy>& total,
                          const Temperature<C>& temperature) {
  constexpr C kNaN = static_cast<C>(NAN);
  const C log_sum = logarithm(total.sum);
  // An infinite maximum makes the row NaN, though not its lse.
  const C log_of_rest = isinf(total.max) ? kNaN : log_sum;
  C logprob = kNaN;
  if (target.kind == RowTarget::column) {
    // Not y - lse: the difference of two large numbers would lose the fraction.
    logprob = (logit - total.max) * temperature.inverse - log_of_rest;
  } else if (target.kind == RowTarget::ignored) {
    logprob = 0;
  } else if (target.kind == RowTarget::of_other_shard) {
    logprob = negative_infinity<C>();
  }
  static_cast<C*>(arguments.logprob)[row] = logprob;
  if (arguments.lse != nullptr) {
    static_cast<C*>(arguments.lse)[row] =
        Summary<C, kEntropy>::reference(total.max) * temperature.inverse + log_sum;
  }
  if (arguments.statistics != nullptr) {
    static_cast<C*>(arguments.statistics)[2 * row] = total.max;
    static_cast<C*>(arguments.statistics)[2 * row + 1] = log_of_rest;
  }
  if constexpr (kEntropy) {
    constexpr C kLn2 = static_cast<C>(0.69314718055994530942);
    static_cast<C*>(arguments.entropy)[row] =
        target.kind == RowTarget::ignored   ? C(0)
        : target.kind == RowTarget::invalid ? kNaN
                                            : log_of_rest - kLn2 * (total.weighted / total.sum);
  }
}

}  // namespace warpfuse::cuda
