#pragma once

#include <type_traits>

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// The tile of the tier column: kVector * width neighbouring rows. `width` threads read its elements
// of one column, and the other threads of the block, and the other blocks of the cluster, have
// other columns of it.

/// What a thread, a warp or a tile found of kVector rows: sums, and where they are of exponentials
/// the maxima that these are relative to.
template <typename T>
struct TilePartial {
  Compute<T> max[kPack<T>], sum[kPack<T>];
};

/// All threads of a tile; those that are `width` apart have the same rows.
class StridedTileGroup {
 public:
  __device__ StridedTileGroup(int width, int blocks) : width_(width), group_(blocks) {}

  __device__ int width() const { return width_; }
  __device__ int blocks() const { return group_.blocks(); }
  __device__ int block() const { return group_.block(); }
  /// Which of the grid's groups this is, and how many there are.
  __device__ int index() const { return group_.index(); }
  __device__ int groups() const { return group_.groups(); }

  /// Combines the values of the lanes of a warp that have the same rows; each gets the results.
  template <int kVector, typename C, typename Combine>
  __device__ void of_warp(C (&values)[kVector], const Combine& combine) const {
    for (int offset = 16; offset >= width_; offset /= 2) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        values[v] = combine(values[v], __shfl_xor_sync(0xffffffffu, values[v], offset));
      }
    }
  }

  /// Makes what the warps found, which their lanes have, what the tile found: one exchange for
  /// maxima and sums together. Without maxima the sums are added as they are.
  template <typename T, bool kMax>
  __device__ void total(TilePartial<T>& found) {
    using C = Compute<T>;
    constexpr int kVector = kPack<T>, kRows = kWidestBytes / static_cast<int>(sizeof(T));
    __shared__ C max_of_warps[kMax ? 16 : 1][kRows + 1], sum_of_warps[16][kRows + 1];
    // In turn: a block that is ahead by a tile writes where none still reads.
    __shared__ C max_of_blocks[2][kMax ? 16 : 1][kRows], sum_of_blocks[2][16][kRows];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int column = thread % width_ * kVector;
    if (lane < width_) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        if constexpr (kMax) {
          max_of_warps[thread / 32][column + v] = found.max[v];
        }
        sum_of_warps[thread / 32][column + v] = found.sum[v];
      }
    }
    if (blocks() > 1) {
      group_.wait_for_start();
    }
    __syncthreads();
    // A warp a row, a lane for what each warp found of it, and then for each block to tell.
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int row = thread / 32; row < width_ * kVector; row += warps) {
      C sum = lane < warps ? sum_of_warps[lane][row] : C(0), max = negative_infinity<C>();
      if constexpr (kMax) {
        const C mine = lane < warps ? max_of_warps[lane][row] : negative_infinity<C>();
        max = group_.lanes().max(mine);
        sum *= mine == max ? C(1) : rescale_factor<T>(mine - max);
      }
      sum = group_.lanes().sum(sum);
      if (lane < blocks()) {
        if constexpr (kMax) {
          C* const to = &max_of_blocks[turn_][block()][row];
          *(blocks() > 1 ? BlockGroup::remote(to, lane) : to) = max;
        }
        C* const to = &sum_of_blocks[turn_][block()][row];
        *(blocks() > 1 ? BlockGroup::remote(to, lane) : to) = sum;
      }
    }
    if (blocks() > 1) {
      BlockGroup::arrive();
      BlockGroup::wait();
    } else {
      __syncthreads();
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      C max = negative_infinity<C>(), sum = C(0);
      if constexpr (kMax) {
        for (int i = 0; i < blocks(); ++i) {
          max = larger(max, max_of_blocks[turn_][i][column + v]);
        }
      }
      for (int i = 0; i < blocks(); ++i) {
        C of_block = sum_of_blocks[turn_][i][column + v];
        if constexpr (kMax) {
          const C block_max = max_of_blocks[turn_][i][column + v];
          of_block *= block_max == max ? C(1) : rescale_factor<T>(block_max - max);
        }
        sum += of_block;
      }
      found.max[v] = max;
      found.sum[v] = sum;
    }
    turn_ ^= 1;
  }

  /// Combines the values of the threads that have the same rows; each gets the result.
  template <int kVector, typename C, typename Combine>
  __device__ void combine(C (&values)[kVector], C identity, const Combine& combine) {
    auto& [of_warps, of_block, of_blocks] = exchange<C>();
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int rows = width_ * kVector;
    of_warp(values, combine);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
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

  template <typename C>
  struct Exchange {
    C of_warps[32][kAcross + 1];
    C of_block[kAcross];
    C of_blocks[2][16][kAcross];  // in turn: a block ahead writes where none still reads
  };
  /// Of all calls of combine(), whatever they combine: two of float64 would be too large.
  template <typename C>
  __device__ static Exchange<C>& exchange() {
    __shared__ Exchange<C> memory;
    return memory;
  }

  static constexpr int kWidestBytes = 128;  // and bytes of them side by side

  int width_;
  BlockGroup group_;
  int turn_ = 0;
};

/// Where a thread stands in its tile.
struct StridedTilePlace {
  int64_t offset;     // of the thread's first row in the tensor
  bool inside;        // there is such a row
  int depth, depths;  // the thread's first column, and how far apart its columns are

  __device__ StridedTilePlace(const RowLayout& layout, int64_t tile, int vector,
                              const StridedTileGroup& group) {
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
struct RowVector {
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

}  // namespace warpfuse::cuda
