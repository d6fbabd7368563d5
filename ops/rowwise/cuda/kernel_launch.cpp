#include "rowwise/cuda/kernel_launch.h"

#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/launch_log.h"
#include "rowwise/tier_counters.h"

namespace warpfuse::cuda {
namespace {

// Allows the kernel as much dynamic shared memory, never less than before: another thread may be
// about to launch it with more.
cudaError_t allow_shared_memory(const void* kernel, size_t bytes) {
  static std::mutex mutex;
  static auto* known = new std::map<std::pair<int, const void*>, size_t>;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  size_t& allowed = (*known)[{device, kernel}];
  if (bytes <= allowed) {
    return cudaSuccess;
  }
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes));
  // Kernels that ask for little live on the L1 cache, whose room this is.
  constexpr size_t kLittle = size_t{8} * 1024;
  if (error == cudaSuccess && bytes > kLittle) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  allowed = error == cudaSuccess ? bytes : allowed;
  return error;
}

// Sets what the kernel must be allowed before it is launched so.
cudaError_t allow(const void* kernel, const LaunchShape& shape) {
  if (shape.cluster > 8) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) {
      return error;
    }
  }
  return shape.shared_bytes > 0 ? allow_shared_memory(kernel, shape.shared_bytes) : cudaSuccess;
}

// Room for every attribute that a launch may have.
using Attributes = cudaLaunchAttribute[3];

cudaLaunchConfig_t configuration(const LaunchShape& shape, Attributes& attributes) {
  cudaLaunchConfig_t config{};
  config.gridDim.x = static_cast<unsigned>(shape.blocks);
  config.blockDim.x = static_cast<unsigned>(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (shape.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  return config;
}

int blocks_per_multiprocessor(const void* kernel, const LaunchShape& shape) {
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, shape.threads, shape.shared_bytes);
  return blocks;
}

int64_t ask_resident_clusters(const void* kernel, const LaunchShape& shape) {
  int clusters = 0;
  if (allow(kernel, shape) == cudaSuccess) {
    if (shape.cluster > 1) {
      Attributes attributes;
      LaunchShape one = shape;
      one.blocks = shape.cluster;
      const cudaLaunchConfig_t config = configuration(one, attributes);
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    } else {
      clusters = blocks_per_multiprocessor(kernel, shape) * device_limits().rows.multiprocessors;
    }
  }
  return std::max(1, clusters);
}

void log_launch(const void* kernel, const LaunchShape& shape) {
  cudaFuncAttributes code{};
  int device = 0, threads = 0;
  cudaGetDevice(&device);
  cudaFuncGetAttributes(&code, kernel);
  cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  const char* kept_in = shape.lane_packs > 0     ? "registers"
                        : shape.shared_bytes > 0 ? "shared"
                                                 : "none";
  LaunchLog::add({to_string(shape.tier), kept_in, shape.lane_packs, shape.blocks, shape.threads,
                  shape.cluster, code.numRegs, code.sharedSizeBytes + shape.shared_bytes,
                  code.localSizeBytes, blocks_per_multiprocessor(kernel, shape), threads / 32});
}

}  // namespace

cudaError_t launch_code(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                        void** arguments) {
  if (shape.blocks > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  if (const cudaError_t error = allow(kernel, shape); error != cudaSuccess) {
    return error;
  }
  Attributes attributes;
  cudaLaunchConfig_t config = configuration(shape, attributes);
  config.stream = stream;
  if (device_limits().dependent_launch) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  tier_counter(shape.tier).add();
  if (LaunchLog::recording()) {
    log_launch(kernel, shape);
  }
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

int64_t resident_clusters(const void* kernel, const LaunchShape& shape) {
  static std::mutex mutex;
  static auto* known = new std::map<std::tuple<int, const void*, int, int, size_t>, int64_t>;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  auto [found, missing] =
      known->try_emplace({device, kernel, shape.threads, shape.cluster, shape.shared_bytes}, 0);
  if (missing) {
    found->second = ask_resident_clusters(kernel, shape);
  }
  return found->second;
}

}  // namespace warpfuse::cuda
