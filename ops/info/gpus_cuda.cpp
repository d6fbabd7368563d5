#include <cuda_runtime_api.h>

#include <string>

#include "common/gpu_probe.h"
#include "info/info.h"

namespace warpfuse {

std::string gpus_json() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no GPU: not an error of ours
    return "[]";
  }
  int current = 0;
  cudaGetDevice(&current);
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp gpu{};
    cudaGetDeviceProperties(&gpu, i);
    cudaSetDevice(i);
    text += std::string(i > 0 ? ", " : "") + "{\"index\": " + std::to_string(i) + ", \"name\": \"" +
            gpu.name + "\", \"compute_capability\": \"" + std::to_string(gpu.major) + "." +
            std::to_string(gpu.minor) +
            "\", \"memory_bytes\": " + std::to_string(gpu.totalGlobalMem) +
            ", \"multiprocessors\": " + std::to_string(gpu.multiProcessorCount) +
            ", \"has_kernel\": " + (code_version_for_current_gpu() > 0 ? "true" : "false") + "}";
  }
  cudaSetDevice(current);
  return text + "]";
}

}  // namespace warpfuse
