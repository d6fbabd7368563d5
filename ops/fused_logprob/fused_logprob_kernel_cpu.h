#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "fused_logprob/fused_logprob_arguments.h"

namespace warpfuse {

// Every row is reduced in parts of this many columns, which are joined from left to right, so that
// a row's result is the same whoever works on it. A part is read twice from a first-level cache.
inline constexpr int64_t kLogprobPartColumns = 4096;

/// Of a part of a row, or of the parts joined so far, with y = (x - max) / temperature.
struct LogprobPart {
  double max;       // of the logits; a NaN among them is in the sum alone
  double sum;       // of exp(y)
  double weighted;  // of exp(y) * y, for the entropy
};

/// Rows cut into parts, for several threads to share a row. Part p is the part p % parts_per_row of
/// the row p / parts_per_row.
template <typename Arguments>
struct LogprobInParts {
  const Arguments& arguments;
  int64_t parts_per_row;
  LogprobPart* parts;  // [rows * parts_per_row], forward alone
};

// Rows [begin, end). A target is ignored, one of the columns, or another shard's.
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_rows_cpu, FusedLogprobArguments)
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_backward_rows_cpu, FusedLogprobBackwardArguments)

// Parts [begin, end), then rows [begin, end) from all their parts; and parts of gradients.
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_parts_cpu, LogprobInParts<FusedLogprobArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_join_cpu, LogprobInParts<FusedLogprobArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(fused_logprob_backward_parts_cpu,
                            LogprobInParts<FusedLogprobBackwardArguments>)

}  // namespace warpfuse
