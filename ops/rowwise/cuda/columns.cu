#include <algorithm>
#include <type_traits>

#include "rowwise/cuda/columns.h"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/strided.cuh"

namespace warpfuse::cuda {
namespace {

// The plan for the rows of `layout`, whose tensors may be read by packs or words where all of
// `pointers` are aligned.
template <typename T, typename... Pointers>
ColumnPlan column_plan(Direction direction, const RowLayout& layout, const Pointers*... pointers) {
  const auto aligned = [&](int vector) {
    return layout.inner % vector == 0 &&
           ((reinterpret_cast<uintptr_t>(pointers) % (vector * sizeof(T)) == 0) && ...);
  };
  const int vector = aligned(kPack<T>) ? kPack<T> : sizeof(T) == 2 && aligned(2) ? 2 : 1;
  return plan_columns(
      {direction, static_cast<int>(sizeof(T)), layout.columns, layout.outer, layout.inner, vector},
      device_limits().rows, tuning());
}

LaunchShape launch_shape(const ColumnPlan& plan) {
  return {Tier::column, plan.lane_packs, plan.tiles * plan.blocks, plan.threads, plan.blocks};
}

// Launches what make(vector, held) returns: a strided function for rows of T that takes `vector`
// neighbouring rows at once and, if `held`, keeps them in registers.
template <typename T, typename Make>
cudaError_t launch(const ColumnPlan& plan, const RowLayout& layout, cudaStream_t stream,
                   const Make& make) {
  constexpr std::integral_constant<int, 1> kElement{};
  LaunchShape shape = launch_shape(plan);
  const auto one_shot = [&](auto vector) {
    const auto function = make(vector, std::true_type());
    using Function = std::remove_const_t<decltype(function)>;
    constexpr int kSlots =
        Function::Vector::kIsPack ? kColumnPacks : column_elements(Function::kDirection, sizeof(T));
    return launch_kernel(strided_kernel<Function, kSlots>, shape, stream, function, layout,
                         plan.width, plan.lanes, plan.blocks);
  };
  if (plan.lane_packs == 0) {
    const auto function = make(kElement, std::false_type());
    return launch_kernel(strided_two_pass_kernel<std::remove_const_t<decltype(function)>>, shape,
                         stream, function, layout, plan.width);
  }
  if (plan.ahead) {
    const auto function = make(std::integral_constant<int, kPack<T>>(), std::true_type());
    using Function = std::remove_const_t<decltype(function)>;
    const auto kernel = strided_persistent_kernel<Function, kColumnAheadPacks / Function::kInputs>;
    shape.shared_bytes = size_t{16} * kColumnAheadPacks * static_cast<size_t>(plan.threads);
    const int64_t clusters = max_active_clusters(kernel, shape);
    shape.blocks = std::min(plan.tiles, clusters) * plan.blocks;
    return launch_kernel(kernel, shape, stream, function, layout, plan.width, plan.blocks,
                         plan.tiles);
  }
  if (plan.vector == kPack<T>) {
    return one_shot(std::integral_constant<int, kPack<T>>());
  }
  if constexpr (sizeof(T) == 2) {
    if (plan.vector == 2) {
      return one_shot(std::integral_constant<int, 2>());
    }
  }
  return one_shot(kElement);
}

template <typename T, bool kLog>
cudaError_t forward(const T* input, T* output, Compute<T> scale, const RowLayout& layout,
                    cudaStream_t stream) {
  return launch<T>(column_plan<T>(Direction::forward, layout, input, output), layout, stream,
                   [&](auto vector, auto held) {
                     return StridedForward<T, kLog, vector, held>{{input}, output, scale};
                   });
}

template <typename T, bool kLog>
cudaError_t backward(const T* grad_output, const T* output, T* grad_input, const RowLayout& layout,
                     cudaStream_t stream) {
  return launch<T>(column_plan<T>(Direction::backward, layout, grad_output, output, grad_input),
                   layout, stream, [&](auto vector, auto) {
                     return StridedBackward<T, kLog, vector>{{grad_output, output}, grad_input};
                   });
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
