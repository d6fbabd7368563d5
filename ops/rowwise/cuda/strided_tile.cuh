#pragma once

#include <type_traits>

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/pack.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// The tile of the tier column: kVector * width neighbouring rows of a dimension that is not the
// last. `width` threads read its elements of one column; the other threads of the block, and the
// other blocks of the cluster, read other columns.

/// kVector elements of neighbouring rows: a pack, a word of two half precision elements, or one
/// element.
template <typename T, int kVector>
struct RowVector {
  using C = Compute<T>;
  static constexpr bool kIsPack = kVector > 1 && kVector == kPack<T>;
  static constexpr bool kIsWord = kVector > 1 && !kIsPack;
  std::conditional_t<kIsPack, uint4, std::conditional_t<kIsWord, unsigned, T>> bits;

  /// -inf in each element.
  __device__ static RowVector lowest() {
    C values[kVector];
    for (C& value : values) {
      value = negative_infinity<C>();
    }
    RowVector vector;
    vector.set(values);
    return vector;
  }

  __device__ void load(const T* from) {
    if constexpr (kIsPack) {
      bits = load_16_bytes(from);
    } else {
      bits = *reinterpret_cast<const decltype(bits)*>(from);
    }
  }
  __device__ void store(T* to) const {
    if constexpr (kIsPack) {
      store_16_bytes(to, bits);
    } else {
      *reinterpret_cast<decltype(bits)*>(to) = bits;
    }
  }
  __device__ void get(C (&values)[kVector]) const {
    if constexpr (kIsPack) {
      unpack<T>(bits, values);
    } else if constexpr (kIsWord) {
      unpack_word(bits, values, T());
    } else {
      values[0] = to_compute(bits);
    }
  }
  __device__ void set(const C (&values)[kVector]) {
    if constexpr (kIsPack) {
      bits = pack_bits<T>(values);
    } else if constexpr (kIsWord) {
      bits = pack_word(values, T());
    } else {
      bits = from_compute<T>(values[0]);
    }
  }
  /// Each element becomes the larger one of its own and that of `other`.
  __device__ void raise(const RowVector& other) {
    if constexpr (kIsPack && sizeof(T) == 2) {
      bits = {larger_pair(bits.x, other.bits.x), larger_pair(bits.y, other.bits.y),
              larger_pair(bits.z, other.bits.z), larger_pair(bits.w, other.bits.w)};
    } else if constexpr (kIsWord) {
      bits = larger_pair(bits, other.bits);
    } else {
      C mine[kVector], others[kVector];
      get(mine);
      other.get(others);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        mine[v] = larger(mine[v], others[v]);
      }
      set(mine);
    }
  }

 private:
  __device__ static unsigned larger_pair(unsigned a, unsigned b) {
    return combine_pairs<T>(a, b, [](auto x, auto y) { return __hmax2(x, y); });
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

/// All threads of a tile. Those that are `width` apart have the same rows, but where `lanes` is not
/// 0: there a warp has rows of its own, and its threads that are `lanes` apart have the same ones.
class StridedTileGroup : public BlockGroup {
 public:
  __device__ StridedTileGroup(int width, int lanes, int blocks)
      : BlockGroup(blocks, /*totals=*/false), width_(width), lanes_(lanes) {}

  __device__ int width() const { return width_; }
  __device__ int lanes_of_warp() const { return lanes_; }

  /// The columns that all threads of the tile read at once.
  __device__ int depths() const {
    return lanes_ > 0 ? 32 >> (__ffs(lanes_) - 1)
                      : static_cast<int>(blockDim.x) / width_ * blocks();
  }

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
    // Neighbouring lanes reduce a row: lane i takes the partial of warp i, then sends the total to
    // block i.
    const int warps = static_cast<int>(blockDim.x) / 32, rows = width_ * kVector;
    int size = 1;
    while (size < warps || size < blocks()) {
      size *= 2;
    }
    const LaneGroup row_lanes(size);
    const int warp_rows = 32 / size, rank = row_lanes.rank();
    for (int first = thread / 32 * warp_rows; first < rows; first += warps * warp_rows) {
      const int row = first + lane / size;
      const bool mine = row < rows && rank < warps;
      C sum = mine ? warp_sums[rank][row] : C(0), max = negative_infinity<C>();
      if constexpr (kMax) {
        const C lane_max = mine ? warp_maxima[rank][row] : negative_infinity<C>();
        max = row_lanes.max(lane_max);
        sum = rescale<T>(sum, lane_max, max);
      }
      sum = row_lanes.sum(sum);
      if (row < rows && rank < blocks()) {
        const auto send = [&](C* to, C value) { *(blocks() > 1 ? remote(to, rank) : to) = value; };
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
    const int apart = lanes_ > 0 ? lanes_ : width_;
    for (int offset = 16; offset >= apart; offset /= 2) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        values[v] = combine(values[v], __shfl_xor_sync(0xffffffffu, values[v], offset));
      }
    }
  }

  int width_, lanes_;
  int turn_ = 0;
};

/// A thread's elements of a tile: `count` of them, `group.depths() * inner` apart.
struct StridedTile {
  int64_t first = 0;  // offset in the tensor
  int count = 0;

  StridedTile() = default;

  /// Where warps have rows of their own: tiles follow one another through all rows.
  __device__ static StridedTile of_warps(const RowLayout& layout, int64_t tile, int vector,
                                         const StridedTileGroup& group) {
    const int lanes = group.lanes_of_warp(), shift = __ffs(lanes) - 1;  // a power of two
    const int thread = static_cast<int>(threadIdx.x), depth = thread % 32 >> shift;
    const int64_t side = layout.inner / vector;
    const int64_t row = tile * group.width() + thread / 32 * lanes + (thread & (lanes - 1));
    const int64_t outer = quotient(row, side);
    StridedTile rows;
    rows.first = (outer * layout.columns + depth) * layout.inner + (row - outer * side) * vector;
    rows.count = outer < layout.outer ? static_cast<int>(layout.columns) - depth : 0;
    rows.count = (rows.count + group.depths() - 1) >> (5 - shift);
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

 private:
  /// In 32 bits where both have no more: a division of 64 bits takes as long as a short row.
  __device__ static int64_t quotient(int64_t a, int64_t b) {
    return (a | b) >> 32 == 0 ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
  }
};

}  // namespace warpfuse::cuda
