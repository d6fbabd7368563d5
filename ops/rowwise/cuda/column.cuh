#pragma once

#include <cooperative_groups.h>

#include "common/cascade_sum.h"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// Tier column: softmax over a dimension that is not the last. A tile is kVector * width
// neighbouring rows; `width` threads read its elements of one column, and the other threads of the
// block, and the other blocks of the cluster, have other columns of it.

/// Where a thread stands in its tile.
struct TilePlace {
  int64_t offset;     // of the thread's first row in the tensor
  bool inside;        // there is such a row
  int depth, depths;  // the thread's first column, and how far apart its columns are
  int width;

  __device__ TilePlace(const RowLayout& layout, int vector, int width, int blocks) : width(width) {
    const int64_t across = static_cast<int64_t>(width) * vector;
    const int64_t tiles = (layout.inner + across - 1) / across;
    const int64_t tile = blockIdx.x / blocks;
    const int x = static_cast<int>(threadIdx.x) % width;
    const int64_t at = tile % tiles * across + static_cast<int64_t>(x) * vector;
    const int depth_of_block = static_cast<int>(blockDim.x) / width;
    offset = tile / tiles * layout.columns * layout.inner + at;
    inside = at < layout.inner;
    depth = static_cast<int>(blockIdx.x) % blocks * depth_of_block +
            static_cast<int>(threadIdx.x) / width;
    depths = depth_of_block * blocks;
  }
};

/// Combines the values of all threads of the tile that have the same rows; each gets the result.
template <int kVector, typename C, typename Combine>
__device__ void across_tile(C (&values)[kVector], C identity, int width, int blocks,
                            const Combine& combine) {
  constexpr int kAcross = 32;  // rows of a tile at most
  __shared__ C of_warps[32][kAcross];
  __shared__ C of_blocks[16][kAcross];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int warps = static_cast<int>(blockDim.x) / 32, rows = width * kVector;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    for (int offset = 16; offset >= width; offset /= 2) {
      values[i] = combine(values[i], __shfl_xor_sync(0xffffffffu, values[i], offset));
    }
    if (lane < width) {
      of_warps[warp][lane * kVector + i] = values[i];
    }
  }
  __syncthreads();
  C total = identity;
  if (thread < rows) {
    for (int i = 0; i < warps; ++i) {
      total = combine(total, of_warps[i][thread]);
    }
  }
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();  // all blocks run, and have read what came before
    if (thread < rows) {
      for (int block = 0; block < blocks; ++block) {
        cluster.map_shared_rank(&of_blocks[0][0], block)[cluster.block_rank() * kAcross + thread] =
            total;
      }
    }
    cluster.sync();
    if (thread < rows) {
      total = identity;
      for (int i = 0; i < blocks; ++i) {
        total = combine(total, of_blocks[i][thread]);
      }
    }
  }
#endif
  if (thread < rows) {
    of_warps[0][thread] = total;  // the other warps' values have been read: by this thread alone
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    values[i] = of_warps[0][thread % width * kVector + i];
  }
  __syncthreads();
}

/// kVector elements of neighbouring rows: 16 bytes, or one element.
template <typename T, int kVector>
struct Lanes {
  using C = Compute<T>;
  uint4 bits;  // the element itself where there is one

  __device__ void load(const T* at) {
    if constexpr (kVector > 1) {
      bits = load_16_bytes(at);
    } else {
      Pack<T> pack;
      pack.element[0] = *at;
      bits = pack.bits;
    }
  }
  __device__ void values(C (&out)[kVector]) const {
    if constexpr (kVector > 1) {
      unpack<T>(bits, out);
    } else {
      Pack<T> pack;
      pack.bits = bits;
      out[0] = to_compute(pack.element[0]);
    }
  }
  __device__ static void store(T* at, const C (&values)[kVector]) {
    if constexpr (kVector > 1) {
      store_16_bytes(at, pack_bits<T>(values));
    } else {
      *at = from_compute<T>(values[0]);
    }
  }
};

template <typename C>
__device__ __forceinline__ C add_values(C a, C b) {
  return a + b;
}

/// The tile in registers: kSlots columns a thread.
template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    column_forward_kernel(const T* input, T* output, RowLayout layout, int width, int blocks) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const TilePlace place(layout, kVector, width, blocks);
  const int64_t columns = place.inside ? layout.columns : 0;
  Lanes<T, kVector> x[kSlots];
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
    if (j < columns) {
      x[i].load(input + place.offset + j * layout.inner);
    }
  }
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
  across_tile(max, lowest<C>(), width, blocks, [](C a, C b) { return larger(a, b); });
  each([&](C(&values)[kVector], int64_t) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      sum[v] += exponential<T>(values[v] - max[v]);
    }
  });
  across_tile(sum, C(0), width, blocks, add_values<C>);
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    sum[v] = kLog ? logarithm(sum[v]) : C(1) / sum[v];
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

template <typename T, bool kLog, int kVector, int kSlots>
__global__ void __launch_bounds__(512)
    column_backward_kernel(const T* grad_output, const T* output, T* grad_input, RowLayout layout,
                           int width, int blocks) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const TilePlace place(layout, kVector, width, blocks);
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
  across_tile(sum, C(0), width, blocks, add_values<C>);
  each([&](C(&grads)[kVector], C(&outputs)[kVector], int64_t j) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      grads[v] =
          kLog ? grads[v] - exponential<T>(outputs[v]) * sum[v] : outputs[v] * (grads[v] - sum[v]);
    }
    Lanes<T, kVector>::store(grad_input + place.offset + j * layout.inner, grads);
  });
}

}  // namespace warpfuse::cuda
