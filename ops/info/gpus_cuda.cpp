#include <cuda_runtime_api.h>

#include <string>

#include "info/build_info.h"
#include "info/has_code.h"
#include "info/info.h"

namespace warpfuse {

// Makes no context: cudaSetDevice() would make one on each GPU, and take its memory.
std::string gpus_json() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no GPU: not an error of ours
    return "[]";
  }
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp gpu{};
    cudaGetDeviceProperties(&gpu, i);
    text +=
        std::string(i > 0 ? ", " : "") + "{\"index\": " + std::to_string(i) + ", \"name\": \"" +
        gpu.name + "\", \"compute_capability\": \"" + std::to_string(gpu.major) + "." +
        std::to_string(gpu.minor) + "\", \"memory_bytes\": " + std::to_string(gpu.totalGlobalMem) +
        ", \"multiprocessors\": " + std::to_string(gpu.multiProcessorCount) + ", \"has_kernel\": " +
        (has_code_for(kArchitectures, gpu.major, gpu.minor) ? "true" : "false") + "}";
  }
  return text + "]";
}

}  // namespace warpfuse
