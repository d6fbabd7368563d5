#pragma once

#include <climits>
#include <cstdint>

#include "rowwise/key_mask.h"

namespace warpfuse::cuda {

/// n / divisor for n below 2^31 by a multiplication (Granlund and Montgomery, "Division by
/// invariant integers using multiplication"): a division takes as long as many elements of a row.
struct FastDivisor {
  unsigned divisor = 1;
  unsigned multiplier = 0;
  int shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(int64_t value) : divisor(static_cast<unsigned>(value)) {
    while ((uint64_t{1} << shift) < divisor) {
      ++shift;
    }
    const uint64_t excess = (uint64_t{1} << shift) - divisor;
    multiplier = static_cast<unsigned>((excess << 32) / divisor + 1);
  }

  __device__ int quotient(int n) const {
    return static_cast<int>(
        (__umulhi(static_cast<unsigned>(n), multiplier) + static_cast<unsigned>(n)) >> shift);
  }
};

/// The order in which the rows of attention's scores are worked on. Where later queries see more
/// keys, the last queries of all heads come first, so that no long row is left for the end; `group`
/// neighbouring queries, the rows of a block, a power of two, stay together.
class RowOrder {
 public:
  RowOrder() = default;
  RowOrder(const KeyRules& rules, int64_t rows, int group)
      : queries_(rules.queries),
        heads_(rules.heads),
        head_rows_(rows / rules.queries),
        longest_first_(rules.causal || rules.query_positions.data != nullptr) {
    groups_ = (queries_ + group - 1) / group;
    steps_ = longest_first_ ? head_rows_ * groups_ * group : rows;
    group_shift_ = 0;
    while ((1 << group_shift_) < group) {
      ++group_shift_;
    }
    small_ = steps_ < INT_MAX && rows < INT_MAX;
    if (small_) {
      by_head_rows_ = FastDivisor(head_rows_);
      by_queries_ = FastDivisor(queries_);
      by_heads_ = FastDivisor(heads_);
    }
  }

  /// Steps in all: the rows, and a few that have none.
  int64_t steps() const { return steps_; }

  /// The row of a step and its place; index is -1 where the step has none.
  __device__ RowPlace place(int64_t step, int64_t& index) const {
    int64_t head_row, query;
    if (longest_first_) {
      const int64_t block = step >> group_shift_;
      const int64_t from_last = divide(block, head_rows_, by_head_rows_);
      head_row = block - from_last * head_rows_;
      query = (groups_ - 1 - from_last) * (int64_t{1} << group_shift_) +
              (step - (block << group_shift_));
    } else {
      head_row = divide(step, queries_, by_queries_);
      query = step - head_row * queries_;
    }
    index = query < queries_ ? head_row * queries_ + query : -1;
    const int64_t batch = divide(head_row, heads_, by_heads_);
    return {batch, head_row - batch * heads_, query};
  }

 private:
  __device__ int64_t divide(int64_t n, int64_t divisor, const FastDivisor& fast) const {
    return small_ ? fast.quotient(static_cast<int>(n)) : n / divisor;
  }

  int64_t queries_ = 1, heads_ = 1, head_rows_ = 1, groups_ = 1, steps_ = 0;
  int group_shift_ = 0;
  bool longest_first_ = false;
  bool small_ = true;
  FastDivisor by_head_rows_, by_queries_, by_heads_;
};

}  // namespace warpfuse::cuda
