#pragma once

namespace warpfuse {

/// Whether this library holds kernels that the current GPU can run.
bool has_kernel_for_current_gpu();

}  // namespace warpfuse
