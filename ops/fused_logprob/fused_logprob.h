#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "common/host_device.h"
#include "core/kernel.h"

namespace warpfuse {

/// Rows of logits, `columns` neighbouring elements each. Row r starts
/// r / inner * outer_stride + r % inner * inner_stride elements after the first, so that
/// logits[:, :-1] needs no copy.
struct LogitRows {
  int64_t rows;
  int64_t columns;
  int64_t inner;
  int64_t outer_stride;
  int64_t inner_stride;

  WARPFUSE_HOST_DEVICE int64_t offset(int64_t row) const {
    if (inner >= rows) {
      return row * inner_stride;  // no division
    }
    return row / inner * outer_stride + row % inner * inner_stride;
  }
};

/// The target t of a row is its column t - vocab_start.
struct LogprobTargets {
  const void* data;  // [rows], int32 or int64
  bool is_int64;
  int64_t ignore_index;
  int64_t vocab_start;
  /// The columns are a shard of a vocabulary: targets beyond them give -inf, which otherwise are
  /// invalid and give NaN.
  bool is_shard;
};

struct RowTarget {
  enum Kind { column, ignored, other_shard, invalid };
  Kind kind;
  int64_t index;  // of the column

  WARPFUSE_HOST_DEVICE RowTarget(const LogprobTargets& targets, int64_t columns, int64_t row) {
    const int64_t target = targets.is_int64 ? static_cast<const int64_t*>(targets.data)[row]
                                            : static_cast<const int32_t*>(targets.data)[row];
    // Unsigned: no target overflows, and targets before the shard end up beyond its last column.
    const uint64_t shard_column =
        static_cast<uint64_t>(target) - static_cast<uint64_t>(targets.vocab_start);
    index = static_cast<int64_t>(shard_column);
    kind = target == targets.ignore_index                                 ? ignored
           : target >= 0 && shard_column < static_cast<uint64_t>(columns) ? column
           : target >= 0 && targets.is_shard                              ? other_shard
                                                                          : invalid;
  }
};

/// Per row, with y = logits / temperature: logprob = y[target] - lse, lse = log(sum(exp(y))) and
/// entropy = -sum(p * log(p)) of p = softmax(y). Results are float32, float64 for float64 logits.
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
  const void* entropy;       // [rows], only with grad_entropy
  const void* grad_logprob;  // [rows] or null
  const void* grad_lse;      // [rows] or null
  const void* grad_entropy;  // [rows] or null
  void* grad_logits;         // laid out by grad_layout; may be the logits' memory
  LogitRows grad_layout;
};

void launch_cpu(const FusedLogprobArguments& arguments);
void launch_cpu(const FusedLogprobBackwardArguments& arguments);
cudaError_t launch_cuda(const FusedLogprobArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const FusedLogprobBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

// --- the CPU kernels, once per instruction set ------------------------------------------------

// Every row is reduced in parts of this many columns, merged from left to right, so that its result
// does not depend on threads. A part is read twice, the second time from a first-level cache.
inline constexpr int64_t kLogprobPartColumns = 4096;

/// A part of a row, reduced, with y = (x - max) / temperature.
struct LogprobPart {
  double max;       // of the logits; only the sum shows a NaN among them
  double sum;       // of exp(y)
  double weighted;  // of exp(y) * y, for the entropy
};

/// Rows cut into parts, so that several threads share a row. Part p is part p % parts_per_row of
/// row p / parts_per_row.
template <typename Arguments>
struct LogprobParts {
  const Arguments& arguments;
  int64_t parts_per_row;
  int64_t part_columns;
  LogprobPart* parts;  // [rows * parts_per_row], forward only
};

// Rows [begin, end). Targets are valid.
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_rows_cpu, FusedLogprobArguments)

// Parts [begin, end) are reduced to memory, or their gradients written; rows [begin, end) are
// merged from all their parts.
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_parts_cpu, LogprobParts<FusedLogprobArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_merge_cpu, LogprobParts<FusedLogprobArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_backward_cpu, LogprobParts<FusedLogprobBackwardArguments>)

}  // namespace warpfuse
