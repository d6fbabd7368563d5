#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_arguments.h"

namespace warpfuse {

// Launches on `stream` of the current device; the launch's error is the result. Nothing is
// synchronised. Tensors are contiguous and not empty.

cudaError_t masked_softmax_dropout_cuda(const MaskedSoftmaxDropoutArguments& arguments,
                                        Workspace& workspace, cudaStream_t stream);
cudaError_t masked_softmax_dropout_backward_cuda(
    const MaskedSoftmaxDropoutBackwardArguments& arguments, Workspace& workspace,
    cudaStream_t stream);

}  // namespace warpfuse
