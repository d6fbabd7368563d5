#pragma once

#include <cuda_runtime_api.h>

#include "fused_logprob/fused_logprob_arguments.h"

namespace warpfuse {

// Launches on `stream` of the current device; the launch's error is the result. Nothing is
// synchronised or allocated. There is at least one row and one column.

cudaError_t fused_logprob_cuda(const FusedLogprobArguments& arguments, cudaStream_t stream);
cudaError_t fused_logprob_backward_cuda(const FusedLogprobBackwardArguments& arguments,
                                        cudaStream_t stream);

}  // namespace warpfuse
