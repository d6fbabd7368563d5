#pragma once

#include <type_traits>

#include "fused_logprob/logprob_row.cuh"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// A row is cut into tiles of a fixed number of columns, counted from its first one; a warp reduces
// a tile. The columns alone decide which lane adds which of them in which order, not addresses and
// not the warp or block: a row's result has the same bits wherever it lies and whatever other rows
// there are.

/// What a lane loads at once: two columns of half precision, or one. Column 0 of a row is the first
/// of a word, aligned in memory or not.
template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;

template <typename T>
constexpr int kWordColumns = sizeof(T) == 2 ? 2 : 1;

/// Words of a tile in the registers of a lane.
template <typename T>
constexpr int kWarpTileWords = sizeof(T) == 8 ? 8 : 16;
template <typename T>
constexpr int kWarpTileColumns = 32 * kWarpTileWords<T> * kWordColumns<T>;

// --- words ------------------------------------------------------------------------------------

/// Loads a word, which the L2 cache may keep: the backward reads it again. Volatile, so that the
/// load stays behind wait_for_previous_kernel().
__device__ __forceinline__ unsigned load_word(const unsigned* address) {
  unsigned bits;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(bits) : "l"(address));
  return bits;
}
__device__ __forceinline__ unsigned long long load_word(const unsigned long long* address) {
  unsigned long long bits;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(bits) : "l"(address));
  return bits;
}

__device__ __forceinline__ void unpack_word(unsigned word, float* values, float) {
  values[0] = __uint_as_float(word);
}
__device__ __forceinline__ void unpack_word(unsigned long long word, double* values, double) {
  values[0] = __longlong_as_double(static_cast<long long>(word));
}

/// The larger value of each column. Drops a NaN, which the sum brings back.
template <typename T>
  requires(sizeof(T) == 2)
__device__ __forceinline__ unsigned larger_word(unsigned a, unsigned b, T) {
  return combine_pairs<T>(a, b, [](auto x, auto y) { return __hmax2(x, y); });
}
__device__ __forceinline__ unsigned larger_word(unsigned a, unsigned b, float) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ __forceinline__ unsigned long long larger_word(unsigned long long a,
                                                          unsigned long long b, double) {
  return __double_as_longlong(fmax(__longlong_as_double(a), __longlong_as_double(b)));
}

// --- a tile in registers ----------------------------------------------------------------------

template <typename T>
struct WarpTile {
  Word<T> words[kWarpTileWords<T>];

  /// Loads the tile at `start`; the row ends after `columns` more columns. `first`: the row's first
  /// tile.
  __device__ void load(const T* start, int64_t columns, bool first) {
    const bool aligned = reinterpret_cast<uintptr_t>(start) % sizeof(Word<T>) == 0;
    if (sizeof(T) > 2 || aligned) {
      if (columns >= kWarpTileColumns<T>) {
        load_full(start);
      } else {
        load_tail(start, static_cast<int>(columns));
      }
    } else if (columns > kWarpTileColumns<T> && !first) {
      load_full_unaligned(start);
    } else {
      load_by_element(start, static_cast<int>(min(columns, int64_t{kWarpTileColumns<T>})));
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void load_full(const T* start) {
    const auto* from = reinterpret_cast<const Word<T>*>(start) + lane();
#pragma unroll
    for (int i = 0; i < kWarpTileWords<T>; ++i) {
      words[i] = load_word(from + 32 * i);
    }
  }

  __device__ void load_tail(const T* start, int columns) {
    const auto* from = reinterpret_cast<const Word<T>*>(start) + lane();
    const int full_words = columns / kWordColumns<T>;
#pragma unroll
    for (int i = 0; i < kWarpTileWords<T>; ++i) {
      words[i] = empty_word(T());
      if (lane() + 32 * i < full_words) {
        words[i] = load_word(from + 32 * i);
      }
    }
    if constexpr (kWordColumns<T> == 2) {
      if (columns % 2 != 0) {
        load_last_column(start, columns);
      }
    }
  }

  /// Loads the row's last column, which has a word to itself.
  __device__ void load_last_column(const T* start, int columns) {
    const int word = columns / 2;
    if (lane() == word % 32) {
      unsigned short bits;
      memcpy(&bits, start + columns - 1, sizeof(bits));
      const unsigned last = (empty_word(T()) & 0xffff0000u) | bits;
#pragma unroll
      for (int i = 0; i < kWarpTileWords<T>; ++i) {
        words[i] = i == word / 32 ? last : words[i];
      }
    }
  }

  /// Loads a tile of half precision at an odd column, with columns of the row before and after it.
  /// A lane loads the aligned word that ends with its first column, and gets its second column from
  /// the next lane.
  __device__ void load_full_unaligned(const T* start) {
    const auto* from = reinterpret_cast<const unsigned*>(start - 1) + lane();
#pragma unroll
    for (int i = 0; i < kWarpTileWords<T>; ++i) {
      words[i] = load_word(from + 32 * i);
    }
    unsigned after = 0;
    if (lane() == 0) {
      after = load_word(from + 32 * kWarpTileWords<T>);
    }
    const int next = (lane() + 1) % 32;
#pragma unroll
    for (int i = 0; i < kWarpTileWords<T>; ++i) {
      const unsigned lane_0_word = i + 1 < kWarpTileWords<T> ? words[i + 1] : after;
      const unsigned upper = __shfl_sync(0xffffffffu, lane() == 0 ? lane_0_word : words[i], next);
      words[i] = __byte_perm(words[i], upper, 0x5432);
    }
  }

  __device__ void load_by_element(const T* start, int columns) {
    const auto* from = reinterpret_cast<const unsigned short*>(start) + 2 * lane();
#pragma unroll
    for (int i = 0; i < kWarpTileWords<T>; ++i) {
      const int column = 2 * (lane() + 32 * i);
      words[i] = empty_word(T());
      if (column + 1 < columns) {
        words[i] = from[64 * i] | static_cast<unsigned>(from[64 * i + 1]) << 16;
      }
    }
    if (columns % 2 != 0) {
      load_last_column(start, columns);
    }
  }
};

/// Reduces a tile; every lane gets the result. Four accumulators shorten the chains of additions.
template <bool kEntropy, typename T>
__device__ LogprobPartial<Compute<T>, kEntropy> reduce_tile(const WarpTile<T>& tile,
                                                            Compute<T> scale) {
  using C = Compute<T>;
  using Partial = LogprobPartial<C, kEntropy>;
  constexpr int kAccumulators = 4;
  Word<T> max_words[2] = {tile.words[0], tile.words[1]};
#pragma unroll
  for (int i = 2; i < kWarpTileWords<T>; ++i) {
    max_words[i % 2] = larger_word(max_words[i % 2], tile.words[i], T());
  }
  C lane_max[2];
  unpack_word(larger_word(max_words[0], max_words[1], T()), lane_max, T());
  C max = kWordColumns<T> == 2 ? larger(lane_max[0], lane_max[1]) : lane_max[0];
  const Warp warp;
  max = warp.max(max);
  const C base = Partial::exp_base(max);
  C sums[kAccumulators] = {}, weighted[kAccumulators] = {};
#pragma unroll
  for (int i = 0; i < kWarpTileWords<T>; ++i) {
    C values[kWordColumns<T>];
    unpack_word(tile.words[i], values, T());
#pragma unroll
    for (int j = 0; j < kWordColumns<T>; ++j) {
      const C d = (values[j] - base) * scale;
      const C power = fast_exp2(d);
      const int k = (i * kWordColumns<T> + j) % kAccumulators;
      sums[k] += power;
      if constexpr (kEntropy) {
        weighted[k] = fma(power, Partial::clamped(d), weighted[k]);
      }
    }
  }
  Partial partial{max, warp.sum((sums[0] + sums[1]) + (sums[2] + sums[3])), C(0)};
  if constexpr (kEntropy) {
    partial.weighted = warp.sum((weighted[0] + weighted[1]) + (weighted[2] + weighted[3]));
  }
  return partial;
}

}  // namespace warpfuse::cuda
