#pragma once

#include <type_traits>

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// Tier column: softmax over a dimension that is not the last. A tile is kVector * width
// neighbouring rows; `width` threads read its elements of one column, and the other threads of the
// block, and the other blocks of the cluster, have other columns of it.

/// All threads of a tile; those that are `width` apart have the same rows.
class TileGroup {
 public:
  __device__ TileGroup(int width, int blocks) : width_(width), group_(blocks) {}

  __device__ int width() const { return width_; }
  __device__ int blocks() const { return group_.blocks(); }
  __device__ int block() const { return group_.block(); }
  /// Which of the grid's groups this is, and how many there are.
  __device__ int index() const { return group_.index(); }
  __device__ int groups() const { return group_.groups(); }

  /// Combines the values of the threads that have the same rows; each gets the result.
  template <int kVector, typename C, typename Combine>
  __device__ void combine(C (&values)[kVector], C identity, const Combine& combine) {
    __shared__ C of_warps[32][kAcross + 1];
    __shared__ C of_block[kAcross];
    __shared__ C of_blocks[2][16][kAcross];  // in turn: a block ahead writes where none still reads
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int rows = width_ * kVector;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      for (int offset = 16; offset >= width_; offset /= 2) {
        values[i] = combine(values[i], __shfl_xor_sync(0xffffffffu, values[i], offset));
      }
      if (lane < width_) {
        of_warps[thread / 32][lane * kVector + i] = values[i];
      }
    }
    __syncthreads();
    // A warp a row, a lane for what each warp found of it.
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int row = thread / 32; row < rows; row += warps) {
      C value = lane < warps ? of_warps[lane][row] : identity;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
      }
      if (lane == 0) {
        of_block[row] = value;
      }
    }
    __syncthreads();
    C total = thread < rows ? of_block[thread] : identity;
    if (blocks() > 1) {
      group_.wait_for_start();
      if (thread < rows) {
        for (int i = 0; i < blocks(); ++i) {
          BlockGroup::remote(&of_blocks[turn_][0][0], i)[block() * kAcross + thread] = total;
        }
      }
      BlockGroup::arrive();
      BlockGroup::wait();
      if (thread < rows) {
        total = identity;
        for (int i = 0; i < blocks(); ++i) {
          total = combine(total, of_blocks[turn_][i][thread]);
        }
        of_block[thread] = total;
      }
      turn_ ^= 1;
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[i] = of_block[thread % width_ * kVector + i];
    }
    __syncthreads();
  }

 private:
  static constexpr int kAcross = 64;  // rows of a tile at most

  int width_;
  BlockGroup group_;
  int turn_ = 0;
};

/// Where a thread stands in its tile.
struct TilePlace {
  int64_t offset;     // of the thread's first row in the tensor
  bool inside;        // there is such a row
  int depth, depths;  // the thread's first column, and how far apart its columns are

  __device__ TilePlace(const RowLayout& layout, int64_t tile, int vector, const TileGroup& group) {
    const int width = group.width();
    const int64_t across = static_cast<int64_t>(width) * vector;
    const int64_t tiles = (layout.inner + across - 1) / across;
    const int64_t at = tile % tiles * across + static_cast<int64_t>(threadIdx.x) % width * vector;
    const int depths_of_block = static_cast<int>(blockDim.x) / width;
    offset = tile / tiles * layout.columns * layout.inner + at;
    inside = at < layout.inner;
    depth = group.block() * depths_of_block + static_cast<int>(threadIdx.x) / width;
    depths = depths_of_block * group.blocks();
  }
};

/// kVector elements of neighbouring rows: 16 bytes, or one element.
template <typename T, int kVector>
struct Lanes {
  using C = Compute<T>;
  std::conditional_t<(kVector > 1), uint4, T> held;

  __device__ void load(const T* at) {
    if constexpr (kVector > 1) {
      held = load_16_bytes(at);
    } else {
      held = *at;
    }
  }
  __device__ void values(C (&out)[kVector]) const {
    if constexpr (kVector > 1) {
      unpack<T>(held, out);
    } else {
      out[0] = to_compute(held);
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

/// One tile that is in registers: x[i] holds column place.depth + i * place.depths.
template <bool kLog, int kVector, int kSlots, typename T>
__device__ __forceinline__ void column_forward(const Lanes<T, kVector> (&x)[kSlots], T* output,
                                               const RowLayout& layout, const TilePlace& place,
                                               TileGroup& group) {
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
    sum[v] = kLog ? logarithm(sum[v] / kExponentialUnit<T>) : C(1) / sum[v];
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
    column_forward_kernel(const T* input, T* output, RowLayout layout, int width, int blocks) {
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
  column_forward<kLog>(x, output, layout, place, group);
}

/// The blocks stay for many tiles: while one is in their registers, the next one is copied to their
/// shared memory.
template <typename T, bool kLog, int kSlots>
__global__ void __launch_bounds__(1024)
    column_ahead_kernel(const T* input, T* output, RowLayout layout, int width, int blocks,
                        int64_t tiles) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  TileGroup group(width, blocks);
  const Staging staging{memory + threadIdx.x, static_cast<int>(blockDim.x), kSlots};
  const auto start = [&](int64_t tile) {
    const TilePlace place(layout, tile, kPack<T>, group);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int64_t j = place.depth + static_cast<int64_t>(i) * place.depths;
      if (place.inside && j < layout.columns) {
        copy_16_bytes(staging.at(i, 0), input + place.offset + j * layout.inner);
      }
    }
    commit_copies();
  };
  start(group.index());
  for (int64_t tile = group.index(); tile < tiles; tile += group.groups()) {
    Lanes<T, kPack<T>> x[kSlots];
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      x[i].held = *staging.at(i, 0);
    }
    if (tile + group.groups() < tiles) {
      start(tile + group.groups());
    }
    const TilePlace place(layout, tile, kPack<T>, group);
    column_forward<kLog>(x, output, layout, place, group);
  }
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
