#pragma once

#include <cuda_runtime.h>

#include <climits>

#include "common/cascade_sum.h"
#include "rowwise/cuda/types.cuh"
#include "rowwise/layout.h"
#include "rowwise/tier_counters.h"

namespace warpfuse::cuda {

/// Tier column: softmax over a dimension that is not the last. A block takes 32 neighbouring rows,
/// so that a warp reads 32 neighbouring elements, and kTileDepth of its warps share their columns.
/// Each element is read twice.
inline constexpr int kTileWidth = 32;
inline constexpr int kTileDepth = 16;

/// Combines the kTileDepth partial values of each row of the tile; all threads get the result.
template <typename C, typename Combine>
__device__ C across_tile(C value, C (&shared)[kTileDepth][kTileWidth], const Combine& combine) {
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  value = shared[0][threadIdx.x];
  for (int i = 1; i < kTileDepth; ++i) {
    value = combine(value, shared[i][threadIdx.x]);
  }
  __syncthreads();
  return value;
}

/// Where this thread's row begins, and whether there is one: tiles lie within an outer index.
struct TilePlace {
  int64_t offset;
  bool inside;

  __device__ explicit TilePlace(const RowLayout& layout) {
    const int64_t tiles = (layout.inner + kTileWidth - 1) / kTileWidth;
    const int64_t at = blockIdx.x % tiles * kTileWidth + threadIdx.x;
    offset = blockIdx.x / tiles * layout.columns * layout.inner + at;
    inside = at < layout.inner;
  }
};

template <typename T, bool kLog>
__global__ void __launch_bounds__(kTileWidth* kTileDepth)
    column_forward_kernel(const T* input, T* output, RowLayout layout) {
  using C = Compute<T>;
  __shared__ C shared[kTileDepth][kTileWidth];
  const TilePlace place(layout);
  const int64_t columns = place.inside ? layout.columns : 0;
  const T* x = input + place.offset;
  T* y = output + place.offset;

  C max = lowest<C>();  // this and the next are of this thread's columns
  CascadeSum<C> exponentials(C(0));
  for (int64_t j = threadIdx.y; j < columns; j += kTileDepth) {
    const C value = to_compute(x[j * layout.inner]);
    if (value > max) {
      exponentials.scale(exponential<T>(max - value));
      max = value;
    }
    exponentials.add(exponential<T>(value - (max == lowest<C>() ? C(0) : max)));
  }
  const C of_row = across_tile(max, shared, [](C a, C b) { return larger(a, b); });
  const C sum =
      across_tile(exponentials.value() * (max == of_row ? C(1) : exponential<T>(max - of_row)),
                  shared, [](C a, C b) { return a + b; });
  const C last = kLog ? logarithm(sum) : C(1) / sum;
  for (int64_t j = threadIdx.y; j < columns; j += kTileDepth) {
    const C shifted = to_compute(x[j * layout.inner]) - of_row;
    y[j * layout.inner] = from_compute<T>(kLog ? shifted - last : exponential<T>(shifted) * last);
  }
}

template <typename T, bool kLog>
__global__ void __launch_bounds__(kTileWidth* kTileDepth)
    column_backward_kernel(const T* grad_output, const T* output, T* grad_input, RowLayout layout) {
  using C = Compute<T>;
  __shared__ C shared[kTileDepth][kTileWidth];
  const TilePlace place(layout);
  const int64_t columns = place.inside ? layout.columns : 0;
  const T* g = grad_output + place.offset;
  const T* y = output + place.offset;
  T* dx = grad_input + place.offset;

  CascadeSum<C> products(C(0));
  for (int64_t j = threadIdx.y; j < columns; j += kTileDepth) {
    const C grad = to_compute(g[j * layout.inner]);
    products.add(kLog ? grad : grad * to_compute(y[j * layout.inner]));
  }
  const C sum = across_tile(products.value(), shared, [](C a, C b) { return a + b; });
  for (int64_t j = threadIdx.y; j < columns; j += kTileDepth) {
    const C grad = to_compute(g[j * layout.inner]), value = to_compute(y[j * layout.inner]);
    dx[j * layout.inner] =
        from_compute<T>(kLog ? grad - exponential<T>(value) * sum : value * (grad - sum));
  }
}

/// Launches kernel(arguments..., layout) over the tiles of the layout.
template <typename Kernel, typename... Pointers>
cudaError_t launch_columns(Kernel kernel, const RowLayout& layout, cudaStream_t stream,
                           Pointers... pointers) {
  const int64_t blocks = layout.outer * ((layout.inner + kTileWidth - 1) / kTileWidth);
  if (blocks > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  tier_counter(Tier::column).add();
  kernel<<<static_cast<unsigned>(blocks), dim3(kTileWidth, kTileDepth), 0, stream>>>(pointers...,
                                                                                     layout);
  return cudaGetLastError();
}

}  // namespace warpfuse::cuda
