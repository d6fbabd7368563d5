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

/// kept_elements<8>, apart from the kernels: few elements need it there.
__device__ __noinline__ inline unsigned kept_anywhere(Dropout dropout, Rng rng, uint64_t first) {
  return kept_elements<kDropoutBlock>(dropout, rng, first);
}

/// What is dropped, as the functors below apply it: kept elements of values are multiplied by
/// `factor`, the others by 0, as ATen does.
template <typename C>
struct Drop {
  Dropout dropout;
  C scale;

  explicit Drop(const Dropout& dropout) : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  template <typename Row, int kCount>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, C factor,
                                        C (&values)[kCount]) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if constexpr (kCount > 1) {
      if (first % kCount == 0 && within_block(row.rng, first, factor, values)) {
        return;
      }
    }
    const unsigned kept = kept_anywhere(dropout, row.rng, first);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= (kept >> i & 1) != 0 ? factor : C(0);
    }
  }

 private:
  /// For elements that are 1/4, 1/2 or all of a block. Returns false, with nothing done, where the
  /// upper bits of a random number leave open whether an element is kept.
  template <int kCount>
  __device__ __forceinline__ bool within_block(const Rng& rng, uint64_t first, C factor,
                                               C (&values)[kCount]) const {
    constexpr int kWords = kCount / 2;
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const int part = static_cast<int>(first % kDropoutBlock) / kCount;
    unsigned words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = draws.words[i];
#pragma unroll
      for (int other = 1; other < kDropoutBlock / kCount; ++other) {
        words[i] = part == other ? draws.words[other * kWords + i] : words[i];
      }
    }
    if (dropout.lower != 0) {
      unsigned differences = 0xffffffffu;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        differences = __vminu2(differences, words[i] ^ dropout.upper * 0x10001u);
      }
      if ((differences & 0xffffu) == 0 || differences >> 16 == 0) {
        return false;
      }
    }
    const unsigned threshold = dropout.upper << 16;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      values[2 * i] *= words[i] << 16 >= threshold ? factor : C(0);
      values[2 * i + 1] *= words[i] >= threshold ? factor : C(0);
    }
    return true;
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
    drop.apply(row, column, drop.scale, values);
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

  template <typename Row>
  __device__ void note(const Row& row, C max, C sum, bool empty) const {
    if (statistics != nullptr && row.index >= 0) {
      statistics[2 * row.index] = empty ? C(INFINITY) : max;
      statistics[2 * row.index + 1] = empty ? C(0) : logarithm(sum / kExponentialUnit<T>);
    }
  }

  template <typename Row, int kCount>
  __device__ void finish(const Row& row, int64_t column, C (&values)[kCount]) const {
    drop.apply(row, column, drop.scale, values);
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
  __device__ void finish(const Row& row, int64_t column, Compute<T> (&values)[kCount]) const {
    drop.apply(row, column, drop.scale, values);
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

  template <typename Row, int kCount>
  __device__ void change(const Row& row, int64_t column, bool full, C (&y)[kCount],
                         C (&g)[kCount]) const {
    bool visible = true;
    load.scores(row, column, full, y, visible);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      y[i] = exponential<T>((y[i] - row.max) - row.log_sum) * (C(1) / kExponentialUnit<T>);
    }
    drop.apply(row, column, C(1), g);
  }

  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool full, uint4& y, uint4& g) const {
    C y_values[kPack<T>], g_values[kPack<T>];
    unpack<T>(y, y_values);
    unpack<T>(g, g_values);
    change(row, column, full, y_values, g_values);
    y = pack_bits<T>(y_values);
    g = pack_bits<T>(g_values);
  }
};

}  // namespace warpfuse::cuda
