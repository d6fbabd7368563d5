#pragma once

#include <cuda_runtime_api.h>

#include "common/dtype.h"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// Softmax, or log_softmax where `log`, over the columns of `layout` where they are not contiguous.
// Launched on `stream` of the current device; the launch's error is the result.

/// output may be input. softmax is multiplied by `scale` before it is rounded; log_softmax has
/// none.
cudaError_t softmax_columns(DType dtype, bool log, double scale, const void* input, void* output,
                            const RowLayout& layout, cudaStream_t stream);

/// grad_input from grad_output and the forward's output, either of which it may be.
cudaError_t softmax_columns_backward(DType dtype, bool log, const void* grad_output,
                                     const void* output, void* grad_input, const RowLayout& layout,
                                     cudaStream_t stream);

}  // namespace warpfuse::cuda
