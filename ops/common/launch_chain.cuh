#pragma once

#include <atomic>

#include "common/launch_chain.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse::cuda {

/// Lets the next kernel start, in a kernel that continues a chain. The others do so after their
/// wait.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Launches kernel(parameters..., continues_chain). All kernels of chains ask for the same split of
/// L1 cache and shared memory: a multiprocessor changes it only when it is idle, so that a kernel
/// of another split could not start early.
template <auto kernel, typename... Parameters>
cudaError_t launch_in_chain(const LaunchShape& shape, cudaStream_t stream,
                            Parameters... parameters) {
  static std::atomic<uint64_t> prepared{0};  // devices, a bit each
  int device = 0;
  cudaGetDevice(&device);
  const uint64_t bit = uint64_t{1} << (device % 64);
  if ((prepared.load(std::memory_order_relaxed) & bit) == 0) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) {
      return error;
    }
    prepared.fetch_or(bit, std::memory_order_relaxed);
  }
  const LaunchChain chain(stream);
  const bool continues = device_limits().dependent_launch && chain.continues();
  const cudaError_t error = launch_kernel(kernel, shape, stream, parameters..., continues);
  chain.extend();
  return error;
}

}  // namespace warpfuse::cuda
