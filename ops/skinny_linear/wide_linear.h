#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

// Many outputs, as a language model's head has, or the largest of them alone: warps that stay, and
// take tile after tile of 8 outputs.

bool is_wide(const SkinnyLinearArguments& arguments);
bool fits_wide_linear(const SkinnyLinearArguments& arguments);
cudaError_t launch_wide_linear(const SkinnyLinearArguments& arguments, Workspace& workspace,
                               cudaStream_t stream);

}  // namespace warpfuse::cuda
