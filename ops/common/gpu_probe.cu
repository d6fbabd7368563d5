#include <cuda_runtime.h>

#include "common/gpu_probe.h"

namespace warpfuse {
namespace {

// Compiled for the same GPUs as all kernels of the library; never launched.
__global__ void probe_kernel() {}

}  // namespace

int code_version_for_current_gpu() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, probe_kernel) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return attributes.ptxVersion;
}

}  // namespace warpfuse
