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

/// Which elements of a pack are kept, a bit each.
struct KeptBits {
  unsigned bits = 0;

  __device__ __forceinline__ void set(int i, bool kept) { bits |= (kept ? 1u : 0u) << i; }

  template <typename C, int kCount>
  __device__ __forceinline__ void multiply(C (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= (bits >> i & 1) != 0 ? C(1) : C(0);
    }
  }
  template <typename C, int kCount>
  __device__ __forceinline__ void replace(C zero, C (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = (bits >> i & 1) != 0 ? values[i] : zero;
    }
  }
  template <typename T>
  __device__ __forceinline__ void multiply_pack(uint4& pack) const {
    Compute<T> values[kPack<T>];
    unpack<T>(pack, values);
    multiply(values);
    pack = pack_bits<T>(values);
  }
};

/// The same for half precision as factors, 1 where an element is kept: to multiply by them packed
/// takes half the instructions.
template <typename T>
struct KeptFactors {
  unsigned pairs[4] = {0, 0, 0, 0};

  __device__ __forceinline__ void set(int i, bool kept) {
    constexpr float kOnes[2] = {1.0f, 1.0f};
    pairs[i / 2] |= kept ? pack_word(kOnes, T()) & (i % 2 == 0 ? 0x0000ffffu : 0xffff0000u) : 0;
  }

  template <typename C>
  __device__ __forceinline__ void multiply(C (&value)[1]) const {
    value[0] *= pairs[0] != 0 ? C(1) : C(0);
  }
  template <typename>
  __device__ __forceinline__ void multiply_pack(uint4& pack) const {
    pack = {product(pack.x, pairs[0]), product(pack.y, pairs[1]), product(pack.z, pairs[2]),
            product(pack.w, pairs[3])};
  }

 private:
  __device__ __forceinline__ static unsigned product(unsigned a, unsigned b) {
    return combine_pairs<T>(a, b, [](auto x, auto y) { return __hmul2(x, y); });
  }
};

/// What is drawn to multiply elements of type T.
template <typename T>
using KeptOf = std::conditional_t<sizeof(T) == 2, KeptFactors<T>, KeptBits>;

/// What is dropped, as the functors below apply it: by factors of 0 and 1, as ATen does, and the
/// scale later.
template <typename C>
struct Drop {
  Dropout dropout;
  C scale;

  explicit Drop(const Dropout& dropout) : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  /// For kPacks times kCount elements, the first at `column`, the others `apart` elements, a
  /// multiple of kCount, from there.
  template <int kCount, int kPacks, typename Row, typename Kept>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       Kept (&kept)[kPacks]) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if (kCount > 1 && first % kCount == 0) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        kept[i] = draw_within_block<kCount, Kept>(row.rng, first + i * apart);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      kept[i] = draw_anywhere<kCount, Kept>(row.rng, first + i * apart);
    }
  }

 private:
  /// Elements that are 1/4, 1/2 or all of a block.
  template <int kCount, typename Kept>
  __device__ __forceinline__ Kept draw_within_block(const Rng& rng, uint64_t first) const {
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const uint32_t least = dropout.least_kept(draws);
    const bool some = least <= 0xffff;
    const uint32_t least_word = least << 16;
    const int part = static_cast<int>(first % kDropoutBlock) / kCount;
    Kept kept;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      uint32_t word = draws.words[i];
#pragma unroll
      for (int other = 1; other < kDropoutBlock / kCount; ++other) {
        word = part == other ? draws.words[other * (kCount / 2) + i] : word;
      }
      kept.set(2 * i, word << 16 >= least_word && some);
      kept.set(2 * i + 1, word >= least_word && some);
    }
    return kept;
  }

  /// In few registers and instructions: packs are seldom unaligned.
  template <int kCount, typename Kept>
  __device__ __forceinline__ Kept draw_anywhere(const Rng& rng, uint64_t first) const {
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < (kCount > 1 ? 2 : 1); ++i) {
      bits |= kept_of_block(dropout, rng, first / kDropoutBlock + i) << (i * kDropoutBlock);
    }
    bits >>= first % kDropoutBlock;
    Kept kept;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      kept.set(i, (bits >> i & 1) != 0);
    }
    return kept;
  }
};

// --- forward ----------------------------------------------------------------------------------

/// Dropout first: a Load.
template <typename T>
struct DropoutLoad {
  using Element = T;
  using Mask = RandomMask<NoMask, Compute<T>>;
  using Drawn = KeptOf<T>;
  static constexpr bool kPlain = true;
  static constexpr bool kAlters = true;
  static constexpr bool kScales = true;
  Mask mask;
  Drop<Compute<T>> drop;

  /// Where all is dropped, any will do.
  __device__ Compute<T> scale_of_exponent() const {
    return drop.scale == Compute<T>(0) ? Compute<T>(1) : drop.scale;
  }

  template <int kCount>
  __device__ void scores(const typename Mask::Row&, int64_t, bool, Compute<T> (&)[kCount],
                         bool&) const {}
};

/// Softmax first: a Store that drops probabilities, and notes a row's maximum and the logarithm of
/// its sum. A row with no visible key gets an infinite maximum: all its probabilities come out 0.
template <typename T>
struct DropoutStore : ProbabilityStore<T> {
  using C = Compute<T>;
  static constexpr bool kFinishes = true;
  using Drawn = KeptBits;

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
  __device__ static void finish(const Drawn& kept, C zero, C (&values)[kCount]) {
    kept.replace(zero, values);
  }
};

// --- backward ---------------------------------------------------------------------------------

/// Dropout came first: the gradient of what softmax took is dropped.
template <typename T>
struct DropoutFirst {
  static constexpr bool kChanges = false;
  static constexpr bool kFinishes = true;
  using Drawn = KeptBits;
  Drop<Compute<T>> drop;

  template <int kCount>
  __device__ static void finish(const Drawn& kept, Compute<T> zero, Compute<T> (&values)[kCount]) {
    kept.replace(zero, values);
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
  using Drawn = KeptOf<T>;
  Load load;
  Drop<C> drop;

  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool, const Drawn& kept, C (&y)[1],
                         C (&g)[1]) const {
    probabilities(row, column, true, y);
    kept.multiply(g);
  }
  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool full, const Drawn& kept, uint4& y,
                         uint4& g) const {
    C values[kPack<T>];
    unpack<T>(y, values);
    probabilities(row, column, full, values);
    y = pack_bits<T>(values);
    kept.template multiply_pack<T>(g);
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
