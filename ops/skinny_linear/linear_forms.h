#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

// The kernels beside that of up to 16 rows (skinny_linear_kernel.cu).

// Many outputs, as a language model's head has, or the largest of them alone: warps that stay, and
// take tile after tile of 8 outputs.
bool is_wide(const SkinnyLinearArguments& arguments);
bool fits_wide_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_wide_linear(const SkinnyLinearArguments& arguments, Workspace& workspace,
                               cudaStream_t stream);

/// Whether these are wide ones of more rows without a norm, the device has what the kernel needs,
/// and ATen's product is not faster.
bool fits_streamed_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_streamed_linear(const SkinnyLinearArguments& arguments, Workspace& workspace,
                                   cudaStream_t stream);

/// Whether these are tiles of rows and outputs (tiled_linear.cuh) that are faster than ATen's.
bool fits_tiled_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_tiled_linear(const SkinnyLinearArguments& arguments, cudaStream_t stream);

}  // namespace warpfuse::cuda
