#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include "common/workspace.h"

namespace warpfuse {

/// Throws c10::Error unless the launch was accepted. Where the library holds no kernel for the
/// GPU, the message names the GPU and the architectures that were built.
void check_launch(const char* op, cudaError_t error);

/// Memory of the caching allocator on the current device.
class TensorWorkspace final : public Workspace {
 public:
  void* allocate(size_t bytes) override {
    memory_ =
        at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
    return memory_.mutable_data_ptr();
  }

 private:
  at::Tensor memory_;
};

/// Calls kernel(stream, workspace) on the device of a tensor, with that device's current stream,
/// and checks the launch.
template <typename Kernel>
void launch_on(const char* op, c10::Device device, const Kernel& kernel) {
  const c10::cuda::CUDAGuard guard(device);
  TensorWorkspace workspace;
  check_launch(op, kernel(at::cuda::getCurrentCUDAStream(), workspace));
}

}  // namespace warpfuse
