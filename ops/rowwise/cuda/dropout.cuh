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

/// What is dropped, as the functors below apply it.
template <typename C>
struct Drop {
  Dropout dropout;
  C scale;

  explicit Drop(const Dropout& dropout) : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  /// Kept values are scaled, the others multiplied by 0, as ATen does.
  template <typename Row, int kCount>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, C (&values)[kCount]) const {
    each<kCount>(row, column, [&](int i, bool kept) { values[i] *= kept ? scale : C(0); });
  }

  /// `zero` takes the place of values that are not kept.
  template <typename Row, int kCount>
  __device__ __forceinline__ void replace(const Row& row, int64_t column, C zero,
                                          C (&values)[kCount]) const {
    each<kCount>(row, column, [&](int i, bool kept) { values[i] = kept ? values[i] : zero; });
  }

  /// The values of a pack that are not kept are multiplied by 0.
  template <typename T, typename Row>
  __device__ __forceinline__ void multiply(const Row& row, int64_t column, uint4& bits) const {
    if constexpr (sizeof(T) == 2) {
      unsigned ones[4] = {0, 0, 0, 0};
      each<8>(row, column, [&](int i, bool kept) {
        ones[i / 2] |= kept ? one_word<T>() & (i % 2 == 0 ? 0x0000ffffu : 0xffff0000u) : 0;
      });
      bits = {product<T>(bits.x, ones[0]), product<T>(bits.y, ones[1]),
              product<T>(bits.z, ones[2]), product<T>(bits.w, ones[3])};
    } else {
      C values[kPack<T>];
      unpack<T>(bits, values);
      multiply(row, column, values);
      bits = pack_bits<T>(values);
    }
  }
  template <typename Row, int kCount>
  __device__ __forceinline__ void multiply(const Row& row, int64_t column,
                                           C (&values)[kCount]) const {
    each<kCount>(row, column, [&](int i, bool kept) { values[i] *= kept ? C(1) : C(0); });
  }

 private:
  /// Calls visit(i, whether it is kept) for neighbouring elements.
  template <int kCount, typename Row, typename Visit>
  __device__ __forceinline__ void each(const Row& row, int64_t column, const Visit& visit) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if (kCount > 1 && first % kCount == 0) {
      each_within_block<kCount>(row.rng, first, visit);
      return;
    }
    // In few registers and instructions: packs are seldom unaligned.
    unsigned kept = 0;
#pragma unroll 1
    for (int i = 0; i < (kCount > 1 ? 2 : 1); ++i) {
      kept |= kept_of_block(dropout, row.rng, first / kDropoutBlock + i) << (i * kDropoutBlock);
    }
    kept >>= first % kDropoutBlock;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      visit(i, (kept >> i & 1) != 0);
    }
  }

  /// Elements that are 1/4, 1/2 or all of a block.
  template <int kCount, typename Visit>
  __device__ __forceinline__ void each_within_block(const Rng& rng, uint64_t first,
                                                    const Visit& visit) const {
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const uint32_t least = dropout.least_kept(draws);
    const bool some = least <= 0xffff;
    const uint32_t least_word = least << 16;
    const int part = static_cast<int>(first % kDropoutBlock) / kCount;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      uint32_t word = draws.words[i];
#pragma unroll
      for (int other = 1; other < kDropoutBlock / kCount; ++other) {
        word = part == other ? draws.words[other * (kCount / 2) + i] : word;
      }
      visit(2 * i, word << 16 >= least_word && some);
      visit(2 * i + 1, word >= least_word && some);
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
  Mask mask;
  Drop<Compute<T>> drop;

  template <int kCount>
  __device__ void scores(const typename Mask::Row& row, int64_t column, bool,
                         Compute<T> (&values)[kCount], bool&) const {
    drop.apply(row, column, values);
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

  template <typename Row, int kCount>
  __device__ void finish(const Row& row, int64_t column, C zero, C (&values)[kCount]) const {
    drop.replace(row, column, zero, values);
  }
};

// --- backward ---------------------------------------------------------------------------------

/// Dropout came first: the gradient of what softmax took is dropped.
template <typename T>
struct DropoutFirst {
  static constexpr bool kChanges = false;
  static constexpr bool kFinishes = true;
  Drop<Compute<T>> drop;

  template <typename Row, int kCount>
  __device__ void finish(const Row& row, int64_t column, Compute<T> zero,
                         Compute<T> (&values)[kCount]) const {
    drop.replace(row, column, zero, values);
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
  __device__ void change(const Row& row, int64_t column, bool, C (&y)[1], C (&g)[1]) const {
    probabilities(row, column, true, y);
    drop.multiply(row, column, g);
  }

  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool full, uint4& y, uint4& g) const {
    C values[kPack<T>];
    unpack<T>(y, values);
    probabilities(row, column, full, values);
    y = pack_bits<T>(values);
    drop.template multiply<T>(row, column, g);
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
