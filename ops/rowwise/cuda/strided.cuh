#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/strided_tile.cuh"

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
__device__ __forceinline__ void strided_forward(const RowVector<T, kVector> (&x)[kSlots], T* output,
                                                const RowLayout& layout,
                                                const StridedTilePlace& place,
                                                StridedTileGroup& group, Compute<T> scale) {
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
    max[v] = negative_infinity<C>();
    sum[v] = C(0);
  }
  each([&](C(&values)[kVector], int64_t) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      max[v] = larger(max[v], values[v]);
    }
  });
  group.combine(max, negative_infinity<C>(), [](C a, C b) { return larger(a, b); });
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
    RowVector<T, kVector>::store(output + place.offset + j * layout.inner, values);
  });
}

/// A tile a block, or a cluster: kSlots columns in the registers of a thread.
template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    strided_forward_kernel(const T* input, T* output, RowLayout layout, int width, int blocks,
                           Compute<T> scale) {
  wait_for_previous_kernel();
  StridedTileGroup group(width, blocks);
  const StridedTilePlace place(layout, group.index(), kVector, group);
  RowVector<T, kVector> x[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
    if (place.inside && j < layout.columns) {
      x[i].load(input + place.offset + j * layout.inner);
    }
  }
  strided_forward<kLog>(x, output, layout, place, group, scale);
}

template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    strided_backward_kernel(const T* grad_output, const T* output, T* grad_input, RowLayout layout,
                            int width, int blocks) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  StridedTileGroup group(width, blocks);
  const StridedTilePlace place(layout, group.index(), kVector, group);
  const int64_t columns = place.inside ? layout.columns : 0;
  RowVector<T, kVector> g[kSlots], y[kSlots];
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
    RowVector<T, kVector>::store(grad_input + place.offset + j * layout.inner, grads);
  });
}

// Tier column for more columns than registers hold: each element is read twice.

template <typename T, bool kLog>
__global__ void __launch_bounds__(512)
    strided_two_pass_forward_kernel(const T* input, T* output, RowLayout layout, int width,
                                    Compute<T> scale) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  StridedTileGroup group(width, 1);
  const StridedTilePlace place(layout, group.index(), 1, group);
  const int64_t columns = place.inside ? layout.columns : 0;
  const T* x = input + place.offset;
  T* y = output + place.offset;
  C max[1] = {negative_infinity<C>()};
  CascadeSum<C> exponentials(C(0));
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C value = to_compute(x[j * layout.inner]);
    if (value > max[0]) {
      exponentials.scale(rescale_factor<T>(max[0] - value));
      max[0] = value;
    }
    exponentials.add(exponential<T>(value - (max[0] == negative_infinity<C>() ? C(0) : max[0])));
  }
  const C of_thread = max[0];
  group.combine(max, negative_infinity<C>(), [](C a, C b) { return larger(a, b); });
  C sum[1] = {exponentials.value() *
              (of_thread == max[0] ? C(1) : rescale_factor<T>(of_thread - max[0]))};
  group.combine(sum, C(0), add_values<C>);
  const C last = kLog ? logarithm(sum[0] / kExponentialUnit<T>) : scale / sum[0];
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C shifted = to_compute(x[j * layout.inner]) - max[0];
    y[j * layout.inner] = from_compute<T>(kLog ? shifted - last : exponential<T>(shifted) * last);
  }
}

template <typename T, bool kLog>
__global__ void __launch_bounds__(512)
    strided_two_pass_backward_kernel(const T* grad_output, const T* output, T* grad_input,
                                     RowLayout layout, int width) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  StridedTileGroup group(width, 1);
  const StridedTilePlace place(layout, group.index(), 1, group);
  const int64_t columns = place.inside ? layout.columns : 0;
  const T* g = grad_output + place.offset;
  const T* y = output + place.offset;
  T* dx = grad_input + place.offset;
  CascadeSum<C> products(C(0));
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C grad = to_compute(g[j * layout.inner]);
    products.add(kLog ? grad : grad * to_compute(y[j * layout.inner]));
  }
  C sum[1] = {products.value()};
  group.combine(sum, C(0), add_values<C>);
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C grad = to_compute(g[j * layout.inner]), value = to_compute(y[j * layout.inner]);
    dx[j * layout.inner] =
        from_compute<T>(kLog ? grad - exponential<T>(value) * (sum[0] / kExponentialUnit<T>)
                             : value * (grad - sum[0]));
  }
}

}  // namespace warpfuse::cuda
