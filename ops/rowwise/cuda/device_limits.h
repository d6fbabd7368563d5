#pragma once

#include <cstddef>

namespace warpfuse::cuda {

/// Dynamic shared memory that one block of the current device may have, in bytes, less what the
/// kernels of the row engine use statically.
size_t shared_memory_limit();

}  // namespace warpfuse::cuda
