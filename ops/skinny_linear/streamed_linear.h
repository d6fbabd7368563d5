#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

/// Whether these are of rows without a norm, the device has what the kernel needs, and ATen's
/// product is not faster.
bool fits_streamed_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_streamed_linear(const SkinnyLinearArguments& arguments, Workspace& workspace,
                                   cudaStream_t stream);

}  // namespace warpfuse::cuda
