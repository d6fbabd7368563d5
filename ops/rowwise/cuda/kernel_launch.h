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

namespace detail {
cudaError_t launch(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                   void** arguments);
int64_t max_active_clusters(const void* kernel, const LaunchShape& shape);
}  // namespace detail

/// Launches any kernel of the row engine. Each of them calls wait_for_previous_kernel(), since it
/// may be started before the kernel ahead of it has ended.
template <typename... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream, Parameters... parameters) {
  void* arguments[] = {&parameters...};
  return detail::launch(reinterpret_cast<const void*>(kernel), shape, stream, arguments);
}

/// Clusters of this shape, or blocks where it has none, that the current device runs at once; at
/// least 1. The latest answers for each kernel are remembered.
template <typename... Parameters>
int64_t max_active_clusters(void (*kernel)(Parameters...), const LaunchShape& shape) {
  return detail::max_active_clusters(reinterpret_cast<const void*>(kernel), shape);
}

}  // namespace warpfuse::cuda
