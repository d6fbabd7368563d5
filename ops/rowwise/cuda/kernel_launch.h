#pragma once

#include <cuda_runtime_api.h>

#include "rowwise/tuning.h"

namespace warpfuse::cuda {

/// A grid of `blocks` blocks, in clusters of `cluster`.
struct LaunchShape {
  Tier tier;
  int lane_packs;
  int64_t blocks;
  int threads;
  int cluster = 1;
  size_t shared_bytes = 0;   // dynamic
  bool cooperative = false;  // all blocks run at once, or the launch fails
};

/// Every kernel of the row engine is launched here. All of them have
/// wait_for_previous_kernel(), so that they may be started early. `arguments` point to the kernel's
/// parameters.
cudaError_t launch_code(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                        void** arguments);

/// How many clusters of this shape, or blocks where it has none, run at once on the current device;
/// at least 1. The answer for a kernel is remembered.
int64_t resident_clusters(const void* kernel, const LaunchShape& shape);

template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream, Parameters... parameters) {
  void* arguments[] = {&parameters...};
  return launch_code(reinterpret_cast<const void*>(kernel), shape, stream, arguments);
}

}  // namespace warpfuse::cuda
