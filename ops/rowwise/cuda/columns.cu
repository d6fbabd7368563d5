#include <algorithm>

#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/strided.cuh"
#include "rowwise/cuda/strided_persistent.cuh"

namespace warpfuse::cuda {
namespace {

// The plan for the rows of `layout`, whose tensors may be read 16 bytes at once where all of
// `pointers` are aligned.
template <typename T, typename... Pointers>
ColumnPlan column_plan(Direction direction, const RowLayout& layout, const Pointers*... pointers) {
  const bool aligned = ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
  const bool vectors = aligned && layout.inner % kPack<T> == 0;
  return plan_columns({direction, static_cast<int>(sizeof(T)), layout.columns, layout.outer,
                       layout.inner, vectors ? kPack<T> : 1},
                      device_limits().rows, tuning());
}

LaunchShape launch_shape(const ColumnPlan& plan) {
  return {Tier::column, plan.lane_packs, plan.tiles * plan.blocks, plan.threads, plan.blocks};
}

// As many blocks as run at once, for all tiles.
template <typename Function>
cudaError_t launch_ahead(const Function& function, const ColumnPlan& plan, const RowLayout& layout,
                         cudaStream_t stream) {
  const auto kernel = strided_persistent_kernel<Function, kColumnAheadPacks / Function::kInputs>;
  LaunchShape shape = launch_shape(plan);
  shape.shared_bytes = size_t{16} * kColumnAheadPacks * static_cast<size_t>(plan.threads);
  const int64_t clusters = max_active_clusters(kernel, shape);
  shape.blocks = std::min(plan.tiles, clusters) * plan.blocks;
  return launch_kernel(kernel, shape, stream, function, layout, plan.width, plan.blocks,
                       plan.tiles);
}

template <typename T, bool kLog>
cudaError_t forward(const T* input, T* output, Compute<T> scale, const RowLayout& layout,
                    cudaStream_t stream) {
  const ColumnPlan plan = column_plan<T>(Direction::forward, layout, input, output);
  const LaunchShape shape = launch_shape(plan);
  if (plan.lane_packs == 0) {
    return launch_kernel(strided_two_pass_forward_kernel<T, kLog>, shape, stream, input, output,
                         layout, plan.width, scale);
  }
  if (plan.ahead) {
    return launch_ahead(StridedForward<T, kLog>{input, output, scale}, plan, layout, stream);
  }
  const auto kernel = plan.vector > 1 ? strided_forward_kernel<T, kLog, kPack<T>, kColumnSlots>
                                      : strided_forward_kernel<T, kLog, 1, kColumnSlots>;
  return launch_kernel(kernel, shape, stream, input, output, layout, plan.width, plan.blocks,
                       scale);
}

template <typename T, bool kLog>
cudaError_t backward(const T* grad_output, const T* output, T* grad_input, const RowLayout& layout,
                     cudaStream_t stream) {
  const ColumnPlan plan =
      column_plan<T>(Direction::backward, layout, grad_output, output, grad_input);
  const LaunchShape shape = launch_shape(plan);
  if (plan.ahead) {
    return launch_ahead(StridedBackward<T, kLog>{grad_output, output, grad_input}, plan, layout,
                        stream);
  }
  if (plan.lane_packs == 0) {
    return launch_kernel(strided_two_pass_backward_kernel<T, kLog>, shape, stream, grad_output,
                         output, grad_input, layout, plan.width);
  }
  const auto kernel = plan.vector > 1 ? strided_backward_kernel<T, kLog, kPack<T>, kColumnSlots>
                                      : strided_backward_kernel<T, kLog, 1, kColumnSlots>;
  return launch_kernel(kernel, shape, stream, grad_output, output, grad_input, layout, plan.width,
                       plan.blocks);
}

}  // namespace

cudaError_t softmax_columns(DType dtype, bool log, double scale, const void* input, void* output,
                            const RowLayout& layout, cudaStream_t stream) {
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return (log ? forward<T, true>
                : forward<T, false>)(static_cast<const T*>(input), static_cast<T*>(output),
                                     static_cast<Compute<T>>(scale), layout, stream);
  });
}

cudaError_t softmax_columns_backward(DType dtype, bool log, const void* grad_output,
                                     const void* output, void* grad_input, const RowLayout& layout,
                                     cudaStream_t stream) {
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return (log ? backward<T, true> : backward<T, false>)(static_cast<const T*>(grad_output),
                                                          static_cast<const T*>(output),
                                                          static_cast<T*>(grad_input), layout,
                                                          stream);
  });
}

}  // namespace warpfuse::cuda
