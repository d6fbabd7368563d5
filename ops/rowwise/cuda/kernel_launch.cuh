#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include <climits>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/launch_log.h"
#include "rowwise/tier_counters.h"

namespace warpfuse::cuda {

/// A grid of `blocks_of_grid` blocks in clusters of `cluster`.
struct LaunchShape {
  Tier tier;
  int lane_packs;
  int64_t blocks_of_grid;
  int threads;
  int cluster = 1;
  size_t shared_bytes = 0;  // dynamic
};

inline void log_launch(const LaunchShape& shape, const cudaLaunchConfig_t& config,
                       const void* kernel) {
  cudaFuncAttributes code{};
  int device = 0, blocks = 0, threads_of_sm = 0;
  cudaGetDevice(&device);
  cudaFuncGetAttributes(&code, kernel);
  cudaDeviceGetAttribute(&threads_of_sm, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, shape.threads, shape.shared_bytes);
  LaunchLog::add({to_string(shape.tier), shape.lane_packs, config.gridDim.x, shape.threads,
                  shape.cluster, code.numRegs, code.sharedSizeBytes + shape.shared_bytes,
                  code.localSizeBytes, blocks, threads_of_sm / 32});
}

/// Every kernel of the row engine is launched here. All of them begin with
/// wait_for_previous_kernel(), so that they may be started early.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape,
                          cudaStream_t stream, const Arguments&... arguments) {
  if (shape.blocks_of_grid > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  constexpr size_t kWithoutAsking = 48 * 1024;
  const void* code = reinterpret_cast<const void*>(kernel);
  cudaError_t error = cudaSuccess;
  if (shape.shared_bytes > 0) {
    if (shape.shared_bytes > kWithoutAsking) {
      error = cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes));
    }
    if (error == cudaSuccess) {
      error = cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
    }
  }
  if (error == cudaSuccess && shape.cluster > 8) {
    error = cudaFuncSetAttribute(code, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks_of_grid));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (device_limits().dependent_launch) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  tier_counter(shape.tier).add();
  if (LaunchLog::recording()) {
    log_launch(shape, config, code);
  }
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace warpfuse::cuda
