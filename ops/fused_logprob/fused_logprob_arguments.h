#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace warpfuse {

/// Rows of logits, `columns` neighbouring elements each. Row r begins
/// r / inner * outer_stride + r % inner * inner_stride elements after the first, so that
/// logits[:, :-1] needs no copy.
struct LogitRows {
  int64_t rows;
  int64_t columns;
  int64_t inner;
  int64_t outer_stride;
  int64_t inner_stride;

  int64_t offset(int64_t row) const {
    return row / inner * outer_stride + row % inner * inner_stride;
  }
};

/// What the targets mean. A target t is the column t - vocab_start of its row.
struct LogprobTargets {
  const void* data;  // [rows], int32 or int64
  bool is_int64;
  int64_t ignore_index;
  int64_t vocab_start;
  /// The columns are a shard of a vocabulary: targets outside it belong to others and give -inf,
  /// where they would be wrong otherwise and give NaN.
  bool is_shard;
};

/// Per row, with y = logits / temperature: logprob = y[target] - lse, lse = log(sum(exp(y))) and
/// entropy = -sum(p * log(p)) of p = softmax(y), in float32, or in float64 for such logits.
struct FusedLogprobArguments {
  const void* logits;
  DType dtype;
  LogitRows layout;
  LogprobTargets targets;
  double temperature;
  void* logprob;     // [rows]
  void* lse;         // [rows] or null
  void* entropy;     // [rows] or null
  void* statistics;  // [rows, 2] or null: the maximum of the logits, log(sum(exp(y - max(y))))
};

/// The gradient of the logits from the gradients of the results.
struct FusedLogprobBackwardArguments {
  const void* logits;
  DType dtype;
  LogitRows layout;
  LogprobTargets targets;
  double temperature;
  const void* statistics;    // [rows, 2]
  const void* entropy;       // [rows], where grad_entropy is given
  const void* grad_logprob;  // [rows] or null
  const void* grad_lse;      // [rows] or null
  const void* grad_entropy;  // [rows] or null
  void* grad_logits;         // like logits, laid out by grad_layout; may be the logits themselves
  LogitRows grad_layout;
};

}  // namespace warpfuse
