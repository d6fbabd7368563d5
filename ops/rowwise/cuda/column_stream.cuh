#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/column.cuh"

namespace warpfuse::cuda {

// Tier column for more columns than registers hold: each element is read twice.

template <typename T, bool kLog>
__global__ void __launch_bounds__(512)
    column_stream_forward_kernel(const T* input, T* output, RowLayout layout, int width,
                                 Compute<T> scale) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  TileGroup group(width, 1);
  const TilePlace place(layout, group.index(), 1, group);
  const int64_t columns = place.inside ? layout.columns : 0;
  const T* x = input + place.offset;
  T* y = output + place.offset;
  C max[1] = {lowest<C>()};
  CascadeSum<C> exponentials(C(0));
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C value = to_compute(x[j * layout.inner]);
    if (value > max[0]) {
      exponentials.scale(decay<T>(max[0] - value));
      max[0] = value;
    }
    exponentials.add(exponential<T>(value - (max[0] == lowest<C>() ? C(0) : max[0])));
  }
  const C of_thread = max[0];
  group.combine(max, lowest<C>(), [](C a, C b) { return larger(a, b); });
  C sum[1] = {exponentials.value() * (of_thread == max[0] ? C(1) : decay<T>(of_thread - max[0]))};
  group.combine(sum, C(0), add_values<C>);
  const C last = kLog ? logarithm(sum[0] / kExponentialUnit<T>) : scale / sum[0];
  for (int64_t j = place.depth; j < columns; j += place.depths) {
    const C shifted = to_compute(x[j * layout.inner]) - max[0];
    y[j * layout.inner] = from_compute<T>(kLog ? shifted - last : exponential<T>(shifted) * last);
  }
}

template <typename T, bool kLog>
__global__ void __launch_bounds__(512)
    column_stream_backward_kernel(const T* grad_output, const T* output, T* grad_input,
                                  RowLayout layout, int width) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  TileGroup group(width, 1);
  const TilePlace place(layout, group.index(), 1, group);
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
