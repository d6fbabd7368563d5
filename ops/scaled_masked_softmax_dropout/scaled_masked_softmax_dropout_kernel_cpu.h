#pragma once

#include "common/cpu_capability.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_arguments.h"

namespace warpfuse {

// Rows [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(masked_dropout_rows_cpu, MaskedSoftmaxDropoutArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_dropout_backward_rows_cpu, MaskedSoftmaxDropoutBackwardArguments)

}  // namespace warpfuse
