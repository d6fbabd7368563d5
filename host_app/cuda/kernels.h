#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace warpfuse::host {

// A kernel that does nothing: what a launch costs.
cudaError_t launch_empty_kernel(cudaStream_t stream);

// `bytes`, `to` and `from` are multiples of 16.
cudaError_t launch_copy_kernel(void* to, const void* from, int64_t bytes, cudaStream_t stream);

}  // namespace warpfuse::host
