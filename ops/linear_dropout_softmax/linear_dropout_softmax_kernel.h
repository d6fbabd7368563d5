#pragma once

#include <cuda_runtime_api.h>

#include "common/workspace.h"
#include "linear_dropout_softmax/linear_dropout_softmax_arguments.h"

namespace warpfuse {

/// Whether linear_dropout_softmax_cuda() takes these arguments on the current device and is faster
/// than at::linear and a softmax kernel: float16, bfloat16 or TF32 on compute capability 9.0; up to
/// 128 rows; a multiple of 8 columns, at most 128 times the GPU's multiprocessors; input and weight
/// with 16-byte aligned rows. Reads only the arguments up to `dropout`.
bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments);

/// The product, dropout and softmax in one kernel, which stores no logits. Launches on `stream` of
/// the current device and returns the launch's error.
cudaError_t linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments,
                                        Workspace& workspace, cudaStream_t stream);

}  // namespace warpfuse
