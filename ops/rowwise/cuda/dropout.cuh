#pragma once

#include "common/dropout.h"
#include "rowwise/cuda/load.cuh"
#include "rowwise/cuda/store.cuh"

namespace warpfuse::cuda {

/// The same numbers in uniform registers, which keeps the round keys of Philox out of those of the
/// threads. All lanes of the warp take part, with equal numbers.
__device__ __forceinline__ uint64_t uniform(uint64_t x) {
#if __CUDA_ARCH__ >= 800
  const unsigned low = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x));
  const unsigned high = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x >> 32));
  return static_cast<uint64_t>(high) << 32 | low;
#else
  return x;
#endif
}

/// A mask whose rows know their random numbers, and what the forward noted of them.
template <typename Base, typename C>
struct RandomMask : Base {
  struct Row : Base::Row {
    int64_t first;  // element of the row, counted over all rows
    Rng rng;
    C max, log_sum;  // of the scores, in the backward where softmax came first
  };

  RngSource source;
  int64_t* used;        // [2] or null: seed and offset are written there
  const C* statistics;  // [rows, 2] or null

  RandomMask(const Base& base, const RngSource& source, int64_t* used, const C* statistics)
      : Base(base), source(source), used(used), statistics(statistics) {}

  __device__ Row row(int64_t step, int64_t columns) const {
    Row row;
    static_cast<typename Base::Row&>(row) = Base::row(step, columns);
    row.first = row.index * columns;
    const Rng rng = source.get();
    row.rng = {uniform(rng.seed), uniform(rng.offset)};
    if (used != nullptr && step == 0) {
      used[0] = static_cast<int64_t>(row.rng.seed);
      used[1] = static_cast<int64_t>(row.rng.offset);
    }
    if (statistics != nullptr && row.index >= 0) {
      row.max = statistics[2 * row.index];
      row.log_sum = statistics[2 * row.index + 1];
    }
    return row;
  }
};

/// What is dropped, as the functors below apply it. Which neighbouring elements are kept is drawn as
/// a bit each: that takes time, and no data.
template <typename C>
struct Drop {
  Dropout dropout;
  C scale;

  explicit Drop(const Dropout& dropout) : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  /// For kPacks times kCount elements, the first at `column`, the others `apart` elements, a
  /// multiple of kCount, from there.
  template <int kCount, int kPacks, typename Row>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       unsigned (&kept)[kPacks]) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if (kCount > 1 && first % kCount == 0) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        kept[i] = draw_within_block<kCount>(row.rng, first + i * apart);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      kept[i] = draw_anywhere<kCount>(row.rng, first + i * apart);
    }
  }

  /// Values that are not kept are multiplied by 0, as ATen does.
  template <int kCount>
  __device__ __forceinline__ static void multiply(unsigned kept, C (&values)[kCount]) {
    for_elements<kCount>(kept, [&](int i, bool is) { values[i] *= is ? C(1) : C(0); });
  }
  template <typename T>
  __device__ __forceinline__ static void multiply(unsigned kept, uint4& bits) {
    if constexpr (sizeof(T) == 2) {
      unsigned ones[4] = {0, 0, 0, 0};
      for_elements<8>(kept, [&](int i, bool is) {
        ones[i / 2] |= is ? one_word<T>() & (i % 2 == 0 ? 0x0000ffffu : 0xffff0000u) : 0;
      });
      bits = {product<T>(bits.x, ones[0]), product<T>(bits.y, ones[1]),
              product<T>(bits.z, ones[2]), product<T>(bits.w, ones[3])};
    } else {
      C values[kPack<T>];
      unpack<T>(bits, values);
      multiply(kept, values);
      bits = pack_bits<T>(values);
    }
  }

  /// `zero` takes the place of values that are not kept.
  template <int kCount>
  __device__ __forceinline__ static void replace(unsigned kept, C zero, C (&values)[kCount]) {
    for_elements<kCount>(kept, [&](int i, bool is) { values[i] = is ? values[i] : zero; });
  }

 private:
  /// Elements that are 1/4, 1/2 or all of a block.
  template <int kCount>
  __device__ __forceinline__ unsigned draw_within_block(const Rng& rng, uint64_t first) const {
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const uint32_t least = dropout.least_kept(draws);
    const bool some = least <= 0xffff;
    const uint32_t least_word = least << 16;
    const int part = static_cast<int>(first % kDropoutBlock) / kCount;
    unsigned kept = 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      uint32_t word = draws.words[i];
#pragma unroll
      for (int other = 1; other < kDropoutBlock / kCount; ++other) {
        word = part == other ? draws.words[other * (kCount / 2) + i] : word;
      }
      kept |= word << 16 >= least_word && some ? 1u << (2 * i) : 0;
      kept |= word >= least_word && some ? 2u << (2 * i) : 0;
    }
    return kept;
  }

  /// In few registers and instructions: packs are seldom unaligned.
  template <int kCount>
  __device__ __forceinline__ unsigned draw_anywhere(const Rng& rng, uint64_t first) const {
    unsigned kept = 0;
#pragma unroll 1
    for (int i = 0; i < (kCount > 1 ? 2 : 1); ++i) {
      kept |= kept_of_block(dropout, rng, first / kDropoutBlock + i) << (i * kDropoutBlock);
    }
    return kept >> first % kDropoutBlock;
  }

  template <int kCount, typename Visit>
  __device__ __forceinline__ static void for_elements(unsigned kept, const Visit& visit) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      visit(i, (kept >> i & 1) != 0);
    }
  }

  template <typename T>
  __device__ static unsigned one_word() {
    constexpr float kOnes[2] = {1.0f, 1.0f};
    return pack_word(kOnes, T());
  }
  template <typename T>
  __device__ static unsigned product(unsigned a, unsigned b) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Pair pairs[2];
    memcpy(&pairs[0], &a, sizeof(a));
    memcpy(&pairs[1], &b, sizeof(b));
    pairs[0] = __hmul2(pairs[0], pairs[1]);
    memcpy(&a, &pairs[0], sizeof(a));
    return a;
  }
};

// --- forward ----------------------------------------------------------------------------------

/// Dropout first: a Load.
template <typename T>
struct DropoutLoad {
  using Element = T;
  using Mask = RandomMask<NoMask, Compute<T>>;
  static constexpr bool kPlain = false;
  static constexpr bool kAlters = true;
  Mask mask;
  Drop<Compute<T>> drop;

  __device__ static void alter(unsigned kept, uint4& bits) {
    Drop<Compute<T>>::template multiply<T>(kept, bits);
  }
  __device__ static void alter(unsigned kept, Compute<T> (&value)[1]) {
    Drop<Compute<T>>::multiply(kept, value);
  }

  template <int kCount>
  __device__ void scores(const typename Mask::Row&, int64_t, bool, Compute<T> (&values)[kCount],
                         bool&) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= drop.scale;
    }
  }
};

/// Softmax first: a Store that drops probabilities, and notes a row's maximum and the logarithm of
/// its sum. A row with no visible key gets an infinite maximum: all its probabilities come out 0.
template <typename T>
struct DropoutStore : ProbabilityStore<T> {
  using C = Compute<T>;
  static constexpr bool kFinishes = true;

  Drop<C> drop;
  C* statistics;  // [rows, 2] or null

  __device__ C factor(C sum) const { return drop.scale / sum; }

  template <typename Row>
  __device__ void note(const Row& row, C max, C sum, bool empty) const {
    if (statistics != nullptr && row.index >= 0) {
      statistics[2 * row.index] = empty ? C(INFINITY) : max;
      statistics[2 * row.index + 1] = empty ? C(0) : logarithm(sum / kExponentialUnit<T>);
    }
  }

  template <int kCount>
  __device__ static void finish(unsigned kept, C zero, C (&values)[kCount]) {
    Drop<C>::replace(kept, zero, values);
  }
};

// --- backward ---------------------------------------------------------------------------------

/// Dropout came first: the gradient of what softmax took is dropped.
template <typename T>
struct DropoutFirst {
  static constexpr bool kChanges = false;
  static constexpr bool kFinishes = true;
  Drop<Compute<T>> drop;

  template <int kCount>
  __device__ static void finish(unsigned kept, Compute<T> zero, Compute<T> (&values)[kCount]) {
    Drop<Compute<T>>::replace(kept, zero, values);
  }
};

/// Softmax came first: the input is there in place of the output, and g is dropped, but for the
/// scale, which is the result's. Probabilities are rounded to T as a saved output would be.
template <typename Load>
struct SoftmaxFirst {
  using T = typename Load::Element;
  using C = Compute<T>;
  static constexpr bool kChanges = true;
  static constexpr bool kFinishes = false;
  Load load;
  Drop<C> drop;


  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool, unsigned kept, C (&y)[1],
                         C (&g)[1]) const {
    probabilities(row, column, true, y);
    Drop<C>::multiply(kept, g);
  }
  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool full, unsigned kept, uint4& y,
                         uint4& g) const {
    C values[kPack<T>];
    unpack<T>(y, values);
    probabilities(row, column, full, values);
    y = pack_bits<T>(values);
    Drop<C>::template multiply<T>(kept, g);
  }

 private:
  template <typename Row, int kCount>
  __device__ void probabilities(const Row& row, int64_t column, bool full, C (&x)[kCount]) const {
    bool visible = true;
    load.scores(row, column, full, x, visible);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = probability<T>(x[i] - row.max, row.log_sum);
    }
  }
};

}  // namespace warpfuse::cuda
