#include <cuda_runtime.h>

#include "info/gpu_probe.h"

namespace warpfuse {
namespace {

// Compiled for the same GPUs as all kernels of the library; never launched.
__global__ void probe_kernel() {}

}  // namespace

bool has_kernel_for_current_gpu() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, probe_kernel) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return true;
}

}  // namespace warpfuse
