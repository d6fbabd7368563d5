#include <c10/util/Exception.h>

#include "core/operator.h"
#include "info/build_info.h"

namespace warpfuse {

void check_launch(const char* op, cudaError_t error) {
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // else the next check of ATen would report it too
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion) {
    int device = 0;
    cudaDeviceProp properties{};
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&properties, device);
    TORCH_CHECK(false, "warpfuse::", op, ": no kernel for ", properties.name,
                " (compute capability ", properties.major, ".", properties.minor,
                "); this library was built for ", kArchitectures);
  }
  TORCH_CHECK(false, "warpfuse::", op, ": launch failed: ", cudaGetErrorString(error));
}

}  // namespace warpfuse
