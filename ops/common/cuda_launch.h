#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

namespace warpfuse {

/// Throws c10::Error unless the launch was accepted. Where the library holds no kernel for the
/// GPU, the message names the GPU and the architectures that were built.
void check_launch(const char* op, cudaError_t error);

/// Calls kernel(stream) on the device of a tensor, with that device's current stream, and checks
/// the launch.
template <typename Kernel>
void launch_on(const char* op, c10::Device device, const Kernel& kernel) {
  const c10::cuda::CUDAGuard guard(device);
  check_launch(op, kernel(at::cuda::getCurrentCUDAStream()));
}

}  // namespace warpfuse
