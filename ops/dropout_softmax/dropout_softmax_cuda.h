#pragma once

#include "common/cuda_launch.h"
#include "dropout_softmax/dropout_softmax_kernel.h"

namespace warpfuse {

/// The launch of a forward for operator `op`, as run_dropout_softmax() takes it.
inline auto launch_forward(const char* op, c10::Device device) {
  return [op, device](const DropoutSoftmaxArguments& arguments) {
    launch_on(op, device, [&](cudaStream_t stream, Workspace& workspace) {
      return dropout_softmax_cuda(arguments, workspace, stream);
    });
  };
}

}  // namespace warpfuse
