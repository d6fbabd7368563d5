#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "sample_tokens/sample_tokens_arguments.h"

namespace warpfuse {

// Rows [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(sample_tokens_cpu, SampleTokensArguments)

}  // namespace warpfuse
