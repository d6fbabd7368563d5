#include "rowwise/cuda/kernel_launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <mutex>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/launch_log.h"
#include "rowwise/tier_counters.h"

namespace warpfuse::cuda {
namespace {

// What is known of a kernel on a device.
struct KernelState {
  const void* kernel;
  int device;
  std::atomic<size_t> shared_bytes{0};            // dynamic, that it was allowed
  std::array<std::atomic<uint64_t>, 4> active{};  // answers of max_active_clusters()
};

// The states of the kernels that were launched: a hash table of pointers that are set once, so that
// a launch finds its state without a lock.
class KernelStates {
 public:
  // Null where the table is full: 8192 pairs of a kernel and a device were launched.
  KernelState* find(const void* kernel) {
    int device = 0;
    cudaGetDevice(&device);
    const size_t hash = reinterpret_cast<uintptr_t>(kernel) / 16 + static_cast<size_t>(device) * 97;
    for (size_t i = 0; i < kSlots; ++i) {
      std::atomic<KernelState*>& slot = slots_[(hash + i) % kSlots];
      KernelState* state = slot.load(std::memory_order_acquire);
      if (state == nullptr) {
        auto* added = new KernelState{kernel, device};
        if (slot.compare_exchange_strong(state, added, std::memory_order_acq_rel)) {
          return added;
        }
        delete added;  // another thread was first; `state` is what it added
      }
      if (state->kernel == kernel && state->device == device) {
        return state;
      }
    }
    return nullptr;
  }

 private:
  static constexpr size_t kSlots = 8192;
  std::array<std::atomic<KernelState*>, kSlots> slots_{};
};

constinit KernelStates states;

// Allows the kernel as much dynamic shared memory, never less than before: another thread may be
// about to launch it with more. Only the first launch of a size takes the lock.
cudaError_t allow_shared_memory(const void* kernel, size_t bytes) {
  KernelState* const state = states.find(kernel);
  if (state != nullptr && bytes <= state->shared_bytes.load(std::memory_order_acquire)) {
    return cudaSuccess;
  }
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (state != nullptr && bytes <= state->shared_bytes.load(std::memory_order_relaxed)) {
    return cudaSuccess;
  }
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes));
  // Kernels with little dynamic shared memory rely on the L1 cache, which shares this carve-out.
  constexpr size_t kLittle = size_t{8} * 1024;
  if (error == cudaSuccess && bytes > kLittle) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  if (error == cudaSuccess && state != nullptr) {
    state->shared_bytes.store(bytes, std::memory_order_release);
  }
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

int64_t count_active_clusters(const void* kernel, const LaunchShape& shape) {
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

namespace detail {

cudaError_t launch(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
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

int64_t max_active_clusters(const void* kernel, const LaunchShape& shape) {
  // The shape in 31 bits, the answer in the others; an answer is at least 1.
  const uint64_t key = static_cast<uint64_t>(shape.threads) |
                       static_cast<uint64_t>(shape.cluster) << 11 |
                       static_cast<uint64_t>(shape.shared_bytes / 16) << 16;
  constexpr int kKeyBits = 31;
  KernelState* const state = states.find(kernel);
  if (state == nullptr) {
    return count_active_clusters(kernel, shape);
  }
  std::atomic<uint64_t>& known = state->active[(key ^ key >> 16) % state->active.size()];
  const uint64_t found = known.load(std::memory_order_relaxed);
  if (found != 0 && (found & ((uint64_t{1} << kKeyBits) - 1)) == key) {
    return static_cast<int64_t>(found >> kKeyBits);
  }
  const int64_t clusters = count_active_clusters(kernel, shape);
  known.store(static_cast<uint64_t>(clusters) << kKeyBits | key, std::memory_order_relaxed);
  return clusters;
}

}  // namespace detail
}  // namespace warpfuse::cuda
