#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

// More rows than a tile of the tensor cores has, in half precision: blocks of rows by outputs.

bool fits_tiled_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_tiled_linear(const SkinnyLinearArguments& arguments, cudaStream_t stream);

}  // namespace warpfuse::cuda
