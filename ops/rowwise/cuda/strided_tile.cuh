#pragma once

#include <type_traits>

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// The tile of the tier column: kVector * width neighbouring rows of a dimension that is not the
// last. `width` threads read its elements of one column; the other threads of the block, and the
// other blocks of the cluster, read other columns. Where there are no others, each thread has whole
// rows, and tiles follow one another through all of them.

/// kVector elements of neighbouring rows: a pack, or one element.
template <typename T, int kVector>
struct RowVector {
  using C = Compute<T>;
  std::conditional_t<(kVector > 1), uint4, T> bits;

  __device__ void load(const T* from) {
    if constexpr (kVector > 1) {
      bits = load_16_bytes(from);
    } else {
      bits = *from;
    }
  }
  __device__ void store(T* to) const {
    if constexpr (kVector > 1) {
      store_16_bytes(to, bits);
    } else {
      *to = bits;
    }
  }
  __device__ void get(C (&values)[kVector]) const {
    if constexpr (kVector > 1) {
      unpack<T>(bits, values);
    } else {
      values[0] = to_compute(bits);
    }
  }
  __device__ void set(const C (&values)[kVector]) {
    if constexpr (kVector > 1) {
      bits = pack_bits<T>(values);
    } else {
      bits = from_compute<T>(values[0]);
    }
  }
};

/// The reduction of a part of kVector rows: sums and, of exponentials, the maxima they are relative
/// to.
template <typename T, int kVector>
struct StridedPartial {
  Compute<T> max[kVector], sum[kVector];

  __device__ static StridedPartial none() {
    StridedPartial partial;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      partial.max[v] = negative_infinity<Compute<T>>();
      partial.sum[v] = 0;
    }
    return partial;
  }
};

/// All threads of a tile. Those that are `width` apart have the same rows.
class StridedTileGroup : public BlockGroup {
 public:
  __device__ StridedTileGroup(int width, int blocks)
      : BlockGroup(blocks, /*totals=*/false), width_(width) {}

  __device__ int width() const { return width_; }

  /// Nothing is exchanged.
  __device__ bool whole_rows() const { return depths() == 1; }

  /// The columns that all threads of the tile read at once.
  __device__ int depths() const { return static_cast<int>(blockDim.x) / width_ * blocks(); }

  /// Maxima and sums over the lanes of a warp that have the same rows; each lane gets the results.
  template <int kVector, typename C>
  __device__ void warp_max(C (&values)[kVector]) const {
    reduce_warp(values, [](C a, C b) { return larger(a, b); });
  }
  template <int kVector, typename C>
  __device__ void warp_sum(C (&values)[kVector]) const {
    reduce_warp(values, [](C a, C b) { return a + b; });
  }

  /// The total of the partials of all warps: one exchange for maxima and sums. Without kMax the
  /// sums are added as they are.
  template <bool kMax, typename T, int kVector>
  __device__ StridedPartial<T, kVector> total(const StridedPartial<T, kVector>& warp_partial) {
    using C = Compute<T>;
    // A vector tile is at most a 128-byte cache line wide, a tile of elements a warp.
    constexpr int kRows = kVector > 1 ? 128 / static_cast<int>(sizeof(T)) : 32;
    __shared__ C warp_maxima[kMax ? 16 : 1][kRows + 1], warp_sums[16][kRows + 1];
    // Double-buffered: a block that is one tile further writes where none still reads.
    __shared__ C block_maxima[2][kMax ? 16 : 1][kRows], block_sums[2][16][kRows];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int column = thread % width_ * kVector;
    if (lane < width_) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        if constexpr (kMax) {
          warp_maxima[thread / 32][column + v] = warp_partial.max[v];
        }
        warp_sums[thread / 32][column + v] = warp_partial.sum[v];
      }
    }
    if (blocks() > 1) {
      wait_for_start();
    }
    __syncthreads();
    // A warp reduces a row: lane i takes the partial of warp i, then sends the total to block i.
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int row = thread / 32; row < width_ * kVector; row += warps) {
      C sum = lane < warps ? warp_sums[lane][row] : C(0), max = negative_infinity<C>();
      if constexpr (kMax) {
        const C lane_max = lane < warps ? warp_maxima[lane][row] : negative_infinity<C>();
        max = lanes().max(lane_max);
        sum = rescale<T>(sum, lane_max, max);
      }
      sum = lanes().sum(sum);
      if (lane < blocks()) {
        const auto send = [&](C* to, C value) { *(blocks() > 1 ? remote(to, lane) : to) = value; };
        if constexpr (kMax) {
          send(&block_maxima[turn_][block()][row], max);
        }
        send(&block_sums[turn_][block()][row], sum);
      }
    }
    sync();
    auto total = StridedPartial<T, kVector>::none();
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      if constexpr (kMax) {
        for (int i = 0; i < blocks(); ++i) {
          total.max[v] = larger(total.max[v], block_maxima[turn_][i][column + v]);
        }
      }
      for (int i = 0; i < blocks(); ++i) {
        C sum = block_sums[turn_][i][column + v];
        if constexpr (kMax) {
          sum = rescale<T>(sum, block_maxima[turn_][i][column + v], total.max[v]);
        }
        total.sum[v] += sum;
      }
    }
    turn_ ^= 1;
    return total;
  }

 private:
  template <int kVector, typename C, typename Combine>
  __device__ void reduce_warp(C (&values)[kVector], const Combine& combine) const {
    for (int offset = 16; offset >= width_; offset /= 2) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        values[v] = combine(values[v], __shfl_xor_sync(0xffffffffu, values[v], offset));
      }
    }
  }

  int width_;
  int turn_ = 0;
};

/// A thread's elements of a tile: `count` of them, `group.depths() * inner` apart.
struct StridedTile {
  int64_t first = 0;  // offset in the tensor
  int count = 0;

  StridedTile() = default;

  /// Where each thread has whole rows.
  __device__ static StridedTile of_rows(const RowLayout& layout, int64_t tile, int vector,
                                        const StridedTileGroup& group) {
    const int64_t side = layout.inner / vector;
    const int64_t row = tile * group.width() + static_cast<int64_t>(threadIdx.x);
    StridedTile rows;
    rows.first = row / side * layout.columns * layout.inner + row % side * vector;
    rows.count = row < layout.outer * side ? static_cast<int>(layout.columns) : 0;
    return rows;
  }

  __device__ StridedTile(const RowLayout& layout, int64_t tile, int vector,
                         const StridedTileGroup& group) {
    const int width = group.width();
    const int64_t across = static_cast<int64_t>(width) * vector;
    const int64_t tiles = (layout.inner + across - 1) / across;
    const int64_t at = tile % tiles * across + static_cast<int64_t>(threadIdx.x) % width * vector;
    const int depth =
        (group.block() * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) / width;
    first = tile / tiles * layout.columns * layout.inner + at + depth * layout.inner;
    const int64_t left = at < layout.inner ? layout.columns - depth : 0;
    count = left > 0 ? static_cast<int>((left + group.depths() - 1) / group.depths()) : 0;
  }
};

}  // namespace warpfuse::cuda
