#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "common/workspace.h"
#include "softmax/softmax_arguments.h"

namespace warpfuse {

// Launches on `stream` of the current device; the launch's error is the result. Nothing is
// synchronised. Tensors are contiguous and not empty. The workspace is asked for memory only where
// a row is split over blocks that are no cluster.

cudaError_t softmax_forward_cuda(const SoftmaxArguments& arguments, Workspace& workspace,
                                 cudaStream_t stream);
cudaError_t softmax_backward_cuda(const SoftmaxBackwardArguments& arguments, Workspace& workspace,
                                  cudaStream_t stream);

/// The forward by one algorithm: naive, warp, block, cluster or stream. Where that one is unknown
/// or cannot take the shape, nothing is launched and `refusal` says what was expected.
cudaError_t softmax_algorithm_cuda(const SoftmaxArguments& arguments, const std::string& algorithm,
                                   Workspace& workspace, cudaStream_t stream, std::string* refusal);

}  // namespace warpfuse
