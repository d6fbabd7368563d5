#include "rowwise/cuda/device_limits.h"

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "common/gpu_probe.h"

namespace warpfuse::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device, int otherwise) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : otherwise;
}

DeviceLimits ask(int device) {
  const int shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, 48 * 1024) -
                     static_cast<int>(kStaticSharedBytes);
  // Code for older GPUs that the driver translated has none of Hopper's instructions.
  const bool hopper_code = code_version_for_current_gpu() >= 90;
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, device, 0);
  const bool clusters = hopper_code && attribute(cudaDevAttrClusterLaunch, device, 0) != 0;
  // Every GPU with clusters takes 8 blocks; the large ones take 16 where a kernel asks for it.
  const int cluster_blocks = !clusters ? 1 : major == 9 || major == 10 ? 16 : 8;
  return {{static_cast<size_t>(shared), cluster_blocks,
           attribute(cudaDevAttrMultiProcessorCount, device, 1),
           attribute(cudaDevAttrCooperativeLaunch, device, 0) != 0},
          hopper_code};
}

}  // namespace

const DeviceLimits& device_limits() {
  constexpr int kDevices = 64;
  static std::array<std::once_flag, kDevices> asked;
  static std::array<DeviceLimits, kDevices> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) {
    static const DeviceLimits least{{size_t{44} * 1024, 1, 1, false}, false};
    return least;
  }
  std::call_once(asked[device], [&] { known[device] = ask(device); });
  return known[device];
}

}  // namespace warpfuse::cuda
