#pragma once

#include "rowwise/cuda/column_stream.cuh"
#include "rowwise/cuda/kernel_launch.cuh"

namespace warpfuse::cuda {

/// How a tile of neighbouring rows is read.
struct ColumnPlan {
  int vector;  // elements a thread reads at once: 16 bytes, or one element
  int width;   // threads side by side
  int blocks;  // that share a tile; 0: it is read twice
  int64_t grid;
};

inline constexpr int kColumnThreads = 512;
inline constexpr int kColumnSlots = 8;  // columns in the registers of a thread

/// `pack` elements are 16 bytes; `aligned`: they may be read at once.
inline ColumnPlan plan_columns(const RowLayout& layout, int pack, bool aligned) {
  ColumnPlan plan{};
  plan.vector = aligned && layout.inner % pack == 0 ? pack : 1;
  // 64 bytes side by side make whole sectors, and leave a block columns enough.
  plan.width = plan.vector > 1 ? 4 : 16;
  const int64_t across = int64_t{plan.width} * plan.vector;
  const int64_t tiles = layout.outer * ((layout.inner + across - 1) / across);
  const int64_t capacity = int64_t{kColumnThreads} / plan.width * kColumnSlots;
  const int most = std::min(device_limits().rows.cluster_blocks, tuning()->cluster_blocks);
  for (plan.blocks = 1; capacity * plan.blocks < layout.columns; plan.blocks *= 2) {
    if (plan.blocks * 2 > most) {
      plan.blocks = 0;
      plan.vector = 1;
      plan.width = 32;
      plan.grid = layout.outer * ((layout.inner + 31) / 32);
      return plan;
    }
  }
  plan.grid = tiles * plan.blocks;
  return plan;
}

template <typename T, bool kLog>
cudaError_t launch_column_forward(const T* input, T* output, const RowLayout& layout,
                                  cudaStream_t stream) {
  const bool aligned =
      (reinterpret_cast<uintptr_t>(input) | reinterpret_cast<uintptr_t>(output)) % 16 == 0;
  const ColumnPlan plan = plan_columns(layout, kPack<T>, aligned);
  const LaunchShape shape{Tier::column, plan.blocks > 0 ? kColumnSlots : 0, plan.grid,
                          kColumnThreads, std::max(1, plan.blocks)};
  if (plan.blocks == 0) {
    return launch_kernel(column_stream_forward_kernel<T, kLog>, shape, stream, input, output,
                         layout, plan.width);
  }
  const auto kernel = plan.vector > 1 ? column_forward_kernel<T, kLog, kPack<T>, kColumnSlots>
                                      : column_forward_kernel<T, kLog, 1, kColumnSlots>;
  return launch_kernel(kernel, shape, stream, input, output, layout, plan.width, plan.blocks);
}

template <typename T, bool kLog>
cudaError_t launch_column_backward(const T* grad_output, const T* output, T* grad_input,
                                   const RowLayout& layout, cudaStream_t stream) {
  const bool aligned =
      (reinterpret_cast<uintptr_t>(grad_output) | reinterpret_cast<uintptr_t>(output) |
       reinterpret_cast<uintptr_t>(grad_input)) %
          16 ==
      0;
  const ColumnPlan plan = plan_columns(layout, kPack<T>, aligned);
  const LaunchShape shape{Tier::column, plan.blocks > 0 ? kColumnSlots : 0, plan.grid,
                          kColumnThreads, std::max(1, plan.blocks)};
  if (plan.blocks == 0) {
    return launch_kernel(column_stream_backward_kernel<T, kLog>, shape, stream, grad_output, output,
                         grad_input, layout, plan.width);
  }
  const auto kernel = plan.vector > 1 ? column_backward_kernel<T, kLog, kPack<T>, kColumnSlots>
                                      : column_backward_kernel<T, kLog, 1, kColumnSlots>;
  return launch_kernel(kernel, shape, stream, grad_output, output, grad_input, layout, plan.width,
                       plan.blocks);
}

}  // namespace warpfuse::cuda
