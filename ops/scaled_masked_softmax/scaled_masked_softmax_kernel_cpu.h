#pragma once

#include "common/cpu_capability.h"
#include "scaled_masked_softmax/scaled_masked_softmax_arguments.h"

namespace warpfuse {

// Rows [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(masked_softmax_rows_cpu, MaskedSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_softmax_backward_rows_cpu, MaskedSoftmaxBackwardArguments)

}  // namespace warpfuse
