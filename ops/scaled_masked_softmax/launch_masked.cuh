#pragma once

#include "rowwise/cuda/launch.cuh"
#include "scaled_masked_softmax/scaled_masked_softmax.h"

namespace warpfuse::cuda {

// Rules alone have kernels where speed counts. float64, rows that no registers hold, and scales
// that are no scales_differences() run by those of mask tensors, with a tensor that hides no key.

/// A mask whose one element, broadcast to all keys, is `visible`. Not in the template below: there
/// nvcc 13.0 takes designated initializers for positional ones.
inline MaskView broadcast_mask(const void* visible) {
  MaskView mask;
  mask.data = visible;
  mask.kind = MaskKind::boolean;
  mask.elements = 1;
  return mask;
}

/// launch(arguments, workspace, stream) with a tensor that hides no key.
template <typename Arguments, typename Launch>
cudaError_t launch_with_all_visible(Arguments arguments, Workspace& workspace, cudaStream_t stream,
                                    const Launch& launch) {
  void* const visible = workspace.allocate(1);
  arguments.mask = broadcast_mask(visible);
  const cudaError_t error = cudaMemsetAsync(visible, 1, 1, stream);
  return error != cudaSuccess ? error : launch(arguments, workspace, stream);
}

/// Runs the rows of a function with a mask tensor or with rules alone. launch_with_tensor runs them
/// with the tensor of its arguments.
template <typename Function, typename Arguments, typename Launch>
cudaError_t launch_masked(const Function& function, int64_t rows, const Arguments& arguments,
                          Workspace& workspace, cudaStream_t stream,
                          const Launch& launch_with_tensor) {
  if constexpr (kHasMaskTensor<Function>) {
    return launch_rows(function, rows, workspace, stream);
  } else {
    if constexpr (sizeof(typename Function::T) < sizeof(double)) {
      const RowPlan plan = current_plan(shape_of(function, rows), device_limits().rows);
      if (plan.tier != Tier::stream) {
        return launch_rows(function, rows, plan, workspace, stream);
      }
    }
    return launch_with_all_visible(arguments, workspace, stream, launch_with_tensor);
  }
}

}  // namespace warpfuse::cuda
