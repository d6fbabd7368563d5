#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "linear_dropout_softmax/linear_dropout_softmax_arguments.h"

namespace warpfuse {

/// Whether linear_dropout_softmax_cuda() takes these on the current device, and is the faster way:
/// half precision or TF32 on compute capability 9.0, up to 128 rows, whose columns are a multiple
/// of 8 and at most 128 times the GPU's multiprocessors; 16-byte aligned rows of input and weight.
bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments);

/// The product, dropout and softmax in one kernel, which needs no memory for the logits. Launches
/// on `stream` of the current device; the launch's error is the result.
cudaError_t linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments,
                                        Workspace& workspace, cudaStream_t stream);

}  // namespace warpfuse
