#pragma once

#include "fused_logprob/logprob_memory.cuh"
#include "fused_logprob/logprob_summary.cuh"
#include "rowwise/cuda/group.cuh"

namespace warpfuse::cuda {

// A row is cut into pieces of a fixed number of columns, counted from its first one, and a piece is
// the work of one warp. Which lane adds up which columns, and in which order, follows from the
// columns alone: not from addresses, nor from which warp of which block has the piece. So a row's
// result has the same bits wherever the row lies and whatever other rows there are.

/// What a lane reads at once: two columns of half precision, or one. The row's column 0 is the
/// first of a word, wherever it lies in memory.
template <typename T>
struct WordOf {
  using type = unsigned;
};
template <>
struct WordOf<double> {
  using type = unsigned long long;
};
template <typename T>
using Word = typename WordOf<T>::type;

template <typename T>
constexpr int kWordColumns = sizeof(T) == 2 ? 2 : 1;

/// Words of a piece that a lane has in registers.
template <typename T>
constexpr int kPieceWords = sizeof(T) == 8 ? 8 : 16;
template <typename T>
constexpr int kPieceColumns = 32 * kPieceWords<T>* kWordColumns<T>;

// --- columns of a word ------------------------------------------------------------------------

__device__ __forceinline__ void unpack_word(unsigned word, float* values, float) {
  values[0] = __uint_as_float(word);
}
__device__ __forceinline__ void unpack_word(unsigned long long word, double* values, double) {
  values[0] = __longlong_as_double(static_cast<long long>(word));
}

/// -inf in every column.
__device__ __forceinline__ unsigned empty_word(__half) { return 0xfc00fc00u; }
__device__ __forceinline__ unsigned empty_word(__nv_bfloat16) { return 0xff80ff80u; }
__device__ __forceinline__ unsigned empty_word(float) { return 0xff800000u; }
__device__ __forceinline__ unsigned long long empty_word(double) { return 0xfff0000000000000u; }

/// The larger of two in each column; drops a NaN, which comes back through the sum.
template <typename T>
requires(sizeof(T) == 2) __device__ __forceinline__
    unsigned larger_word(unsigned a, unsigned b, T) {
  return combine_pairs<T>(a, b, [](auto x, auto y) { return __hmax2(x, y); });
}
__device__ __forceinline__ unsigned larger_word(unsigned a, unsigned b, float) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ __forceinline__ unsigned long long larger_word(unsigned long long a,
                                                          unsigned long long b, double) {
  return __double_as_longlong(fmax(__longlong_as_double(a), __longlong_as_double(b)));
}

// --- reading a piece --------------------------------------------------------------------------

template <typename T>
struct Piece {
  Word<T> words[kPieceWords<T>];

  /// Reads the piece at `start`, which has `columns` columns of its row left. `first`: it is the
  /// row's first.
  __device__ void read(const T* start, int64_t columns, bool first) {
    const bool aligned = reinterpret_cast<uintptr_t>(start) % sizeof(Word<T>) == 0;
    if (sizeof(T) > 2 || aligned) {
      if (columns >= kPieceColumns<T>) {
        read_whole(start);
      } else {
        read_part(start, static_cast<int>(columns));
      }
    } else if (columns > kPieceColumns<T> && !first) {
      read_whole_between(start);
    } else {
      read_part_of_halves(start, static_cast<int>(min(columns, int64_t{kPieceColumns<T>})));
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void read_whole(const T* start) {
    const auto* from = reinterpret_cast<const Word<T>*>(start) + lane();
#pragma unroll
    for (int i = 0; i < kPieceWords<T>; ++i) {
      words[i] = load_word(from + 32 * i);
    }
  }

  __device__ void read_part(const T* start, int columns) {
    const auto* from = reinterpret_cast<const Word<T>*>(start) + lane();
    const int whole = columns / kWordColumns<T>;
#pragma unroll
    for (int i = 0; i < kPieceWords<T>; ++i) {
      words[i] = empty_word(T());
      if (lane() + 32 * i < whole) {
        words[i] = load_word(from + 32 * i);
      }
    }
    if constexpr (kWordColumns<T> == 2) {
      if (columns % 2 != 0) {
        put_last_half(start, columns);
      }
    }
  }

  /// The row's last column where it is alone in its word.
  __device__ void put_last_half(const T* start, int columns) {
    const int word = columns / 2;
    if (lane() == word % 32) {
      unsigned short bits;
      memcpy(&bits, start + columns - 1, sizeof(bits));
      const unsigned last = (empty_word(T()) & 0xffff0000u) | bits;
#pragma unroll
      for (int i = 0; i < kPieceWords<T>; ++i) {
        words[i] = i == word / 32 ? last : words[i];
      }
    }
  }

  /// A piece with columns of its row before and after it, whose words lie across those of memory: a
  /// lane reads the one that ends with its word's first column, and has the other column from the
  /// next lane.
  __device__ void read_whole_between(const T* start) {
    const auto* from = reinterpret_cast<const unsigned*>(start - 1) + lane();
#pragma unroll
    for (int i = 0; i < kPieceWords<T>; ++i) {
      words[i] = load_word(from + 32 * i);
    }
    unsigned after = 0;
    if (lane() == 0) {
      after = load_word(from + 32 * kPieceWords<T>);
    }
    const int next = (lane() + 1) % 32;
#pragma unroll
    for (int i = 0; i < kPieceWords<T>; ++i) {
      const unsigned of_first_lane = i + 1 < kPieceWords<T> ? words[i + 1] : after;
      const unsigned upper = __shfl_sync(0xffffffffu, lane() == 0 ? of_first_lane : words[i], next);
      words[i] = __byte_perm(words[i], upper, 0x5432);
    }
  }

  __device__ void read_part_of_halves(const T* start, int columns) {
    const auto* from = reinterpret_cast<const unsigned short*>(start) + 2 * lane();
#pragma unroll
    for (int i = 0; i < kPieceWords<T>; ++i) {
      const int column = 2 * (lane() + 32 * i);
      words[i] = empty_word(T());
      if (column + 1 < columns) {
        words[i] = from[64 * i] | static_cast<unsigned>(from[64 * i + 1]) << 16;
      }
    }
    if (columns % 2 != 0) {
      put_last_half(start, columns);
    }
  }
};

// --- adding it up -----------------------------------------------------------------------------

/// The summary of a piece, in every lane.
template <bool kEntropy, typename T>
__device__ Summary<Compute<T>, kEntropy> summarize(const Piece<T>& piece, Compute<T> scale) {
  using C = Compute<T>;
  using Result = Summary<C, kEntropy>;
  constexpr int kSums = 4;
  Word<T> greatest[2] = {piece.words[0], piece.words[1]};
#pragma unroll
  for (int i = 2; i < kPieceWords<T>; ++i) {
    greatest[i % 2] = larger_word(greatest[i % 2], piece.words[i], T());
  }
  C of_word[2];
  unpack_word(larger_word(greatest[0], greatest[1], T()), of_word, T());
  C max = kWordColumns<T> == 2 ? larger(of_word[0], of_word[1]) : of_word[0];
  const Warp lanes;
  max = lanes.max(max);
  const C reference = Result::reference(max);
  C sums[kSums] = {}, weighted[kSums] = {};
#pragma unroll
  for (int i = 0; i < kPieceWords<T>; ++i) {
    C values[kWordColumns<T>];
    unpack_word(piece.words[i], values, T());
#pragma unroll
    for (int j = 0; j < kWordColumns<T>; ++j) {
      const C d = (values[j] - reference) * scale;
      const C power = fast_exp2(d);
      const int which = (i * kWordColumns<T> + j) % kSums;
      sums[which] += power;
      if constexpr (kEntropy) {
        weighted[which] = fma(power, Result::bounded(d), weighted[which]);
      }
    }
  }
  Result result{max, lanes.sum((sums[0] + sums[1]) + (sums[2] + sums[3])), C(0)};
  if constexpr (kEntropy) {
    result.weighted = lanes.sum((weighted[0] + weighted[1]) + (weighted[2] + weighted[3]));
  }
  return result;
}

}  // namespace warpfuse::cuda
