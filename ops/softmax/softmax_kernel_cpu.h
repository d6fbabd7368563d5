#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "rowwise/cpu/row_part.h"
#include "softmax/softmax_arguments.h"

namespace warpfuse {

/// Rows along the last dimension from `first_row` on, each cut into parts, so that several threads
/// share a row and a row need not fit a cache. Part p is the part p % parts_per_row of the row
/// first_row + p / parts_per_row.
template <typename Arguments>
struct InParts {
  const Arguments& arguments;
  int64_t first_row;
  int64_t part_columns;
  int64_t parts_per_row;
  RowPart* parts;  // of these rows: [rows * parts_per_row]
  RowPart* rows;   // [rows]
};

// Rows [begin, end) of a tensor; row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_rows_cpu, SoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_rows_cpu, SoftmaxBackwardArguments)

// Parts [begin, end): first `parts` of each, then, from `rows`, the results.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_parts_cpu, InParts<SoftmaxArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_part_results_cpu, InParts<SoftmaxArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_parts_cpu, InParts<SoftmaxBackwardArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_part_results_cpu, InParts<SoftmaxBackwardArguments>)

/// The plain algorithm without vectors: three loops a row.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_naive_rows_cpu, SoftmaxArguments)

}  // namespace warpfuse
