#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "dropout_softmax/dropout_softmax_arguments.h"

namespace warpfuse {

// Launches on `stream` of the current device; the launch's error is the result. Nothing is
// synchronised. Tensors are contiguous and not empty.

cudaError_t dropout_softmax_cuda(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                                 cudaStream_t stream);
cudaError_t dropout_softmax_backward_cuda(const DropoutSoftmaxBackwardArguments& arguments,
                                          Workspace& workspace, cudaStream_t stream);
cudaError_t dropout_mask_cuda(const DropoutMaskArguments& arguments, cudaStream_t stream);

}  // namespace warpfuse
