#pragma once

#include "rowwise/cuda/tile.cuh"

namespace warpfuse::cuda {

// Tier column: softmax over a dimension that is not the last, a tile of neighbouring rows at a
// time.

template <typename C>
__device__ __forceinline__ C add_values(C a, C b) {
  return a + b;
}

/// One tile that is in registers: x[i] holds column place.depth + i * place.depths. softmax is
/// multiplied by `scale` before it is rounded.
template <bool kLog, int kVector, int kSlots, typename T>
__device__ __forceinline__ void column_forward(const Lanes<T, kVector> (&x)[kSlots], T* output,
                                               const RowLayout& layout, const TilePlace& place,
                                               TileGroup& group, Compute<T> scale) {
  using C = Compute<T>;
  const int64_t columns = place.inside ? layout.columns : 0;
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
      if (j < columns) {
        C values[kVector];
        x[i].values(values);
        visit(values, j);
      }
    }
  };
  C max[kVector], sum[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    max[v] = lowest<C>();
    sum[v] = C(0);
  }
  each([&](C(&values)[kVector], int64_t) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      max[v] = larger(max[v], values[v]);
    }
  });
  group.combine(max, lowest<C>(), [](C a, C b) { return larger(a, b); });
  each([&](C(&values)[kVector], int64_t) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      sum[v] += exponential<T>(values[v] - max[v]);
    }
  });
  group.combine(sum, C(0), add_values<C>);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    sum[v] = kLog ? logarithm(sum[v] / kExponentialUnit<T>) : scale / sum[v];
  }
  each([&](C(&values)[kVector], int64_t j) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const C shifted = values[v] - max[v];
      values[v] = kLog ? shifted - sum[v] : exponential<T>(shifted) * sum[v];
    }
    Lanes<T, kVector>::store(output + place.offset + j * layout.inner, values);
  });
}

/// A tile a block, or a cluster: kSlots columns in the registers of a thread.
template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    column_forward_kernel(const T* input, T* output, RowLayout layout, int width, int blocks,
                          Compute<T> scale) {
  wait_for_previous_kernel();
  TileGroup group(width, blocks);
  const TilePlace place(layout, group.index(), kVector, group);
  Lanes<T, kVector> x[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
    if (place.inside && j < layout.columns) {
      x[i].load(input + place.offset + j * layout.inner);
    }
  }
  column_forward<kLog>(x, output, layout, place, group, scale);
}

template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    column_backward_kernel(const T* grad_output, const T* output, T* grad_input, RowLayout layout,
                           int width, int blocks) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  TileGroup group(width, blocks);
  const TilePlace place(layout, group.index(), kVector, group);
  const int64_t columns = place.inside ? layout.columns : 0;
  Lanes<T, kVector> g[kSlots], y[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
    if (j < columns) {
      g[i].load(grad_output + place.offset + j * layout.inner);
      y[i].load(output + place.offset + j * layout.inner);
    }
  }
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
      if (j < columns) {
        C grads[kVector], outputs[kVector];
        g[i].values(grads);
        y[i].values(outputs);
        visit(grads, outputs, j);
      }
    }
  };
  C sum[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    sum[v] = C(0);
  }
  each([&](C(&grads)[kVector], C(&outputs)[kVector], int64_t) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      sum[v] += kLog ? grads[v] : grads[v] * outputs[v];
    }
  });
  group.combine(sum, C(0), add_values<C>);
  each([&](C(&grads)[kVector], C(&outputs)[kVector], int64_t j) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      grads[v] = kLog ? grads[v] - exponential<T>(outputs[v]) * (sum[v] / kExponentialUnit<T>)
                      : outputs[v] * (grads[v] - sum[v]);
    }
    Lanes<T, kVector>::store(grad_input + place.offset + j * layout.inner, grads);
  });
}

}  // namespace warpfuse::cuda
