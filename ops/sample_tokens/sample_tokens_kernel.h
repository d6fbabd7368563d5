#pragma once

#include <cuda_runtime_api.h>

#include "sample_tokens/sample_tokens_arguments.h"

namespace warpfuse {

/// Launches on `stream` of the current device; the launch's error is the result. Nothing is
/// synchronised or allocated. There is at least one row and one column.
cudaError_t sample_tokens_cuda(const SampleTokensArguments& arguments, cudaStream_t stream);

}  // namespace warpfuse
