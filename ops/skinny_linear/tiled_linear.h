#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

/// Whether these are tiles of rows and outputs (tiled_linear.cuh) that are faster than ATen's.
bool fits_tiled_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_tiled_linear(const SkinnyLinearArguments& arguments, cudaStream_t stream);

}  // namespace warpfuse::cuda
