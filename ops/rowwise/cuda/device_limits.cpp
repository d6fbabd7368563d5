#include "rowwise/cuda/device_limits.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace warpfuse::cuda {

size_t shared_memory_limit() {
  constexpr int kStatic = 2048;
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];  // 0: not asked yet
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) {
    return 48 * 1024 - kStatic;
  }
  int limit = known[device].load(std::memory_order_relaxed);
  if (limit == 0) {
    if (cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
        cudaSuccess) {
      limit = 48 * 1024;
    }
    known[device].store(limit, std::memory_order_relaxed);
  }
  return static_cast<size_t>(limit - kStatic);
}

}  // namespace warpfuse::cuda
