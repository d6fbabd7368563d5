#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/decode/step_state.h"

namespace warpfuse::host {

// A kernel that does nothing: what a launch costs.
cudaError_t launch_empty_kernel(cudaStream_t stream);

// `bytes`, `to` and `from` are multiples of 16.
cudaError_t launch_copy_kernel(void* to, const void* from, int64_t bytes, cudaStream_t stream);

// What advance() and begin() of step_state.h do, each in one kernel.
cudaError_t launch_advance_kernel(const StepState& state, const int64_t* tokens,
                                  cudaStream_t stream);
cudaError_t launch_begin_kernel(const StepState& state, const FirstTokens& first,
                                cudaStream_t stream);

}  // namespace warpfuse::host
