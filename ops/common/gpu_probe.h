#pragma once

namespace warpfuse {

/// The architecture of this library's code that the current GPU runs, as 90 for 9.0; it may be
/// older than the GPU where the driver translated it. 0 where the library holds no code for the
/// GPU.
int code_version_for_current_gpu();

}  // namespace warpfuse
