#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "softmax/softmax_arguments.h"

namespace warpfuse {

// Rows [begin, end) of a tensor; row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_rows_cpu, SoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_rows_cpu, SoftmaxBackwardArguments)

/// The plain algorithm without vectors: three loops a row.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_naive_rows_cpu, SoftmaxArguments)

}  // namespace warpfuse
