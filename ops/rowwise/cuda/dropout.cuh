#pragma once

#include "rowwise/cuda/draws.cuh"
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

/// A kernel's random state, which its first thread notes in used[2] if it is not null.
__device__ inline Rng rng_of_kernel(const RngSource& source, int64_t* used) {
  const Rng rng = source.get();
  if (used != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    used[0] = static_cast<int64_t>(rng.seed);
    used[1] = static_cast<int64_t>(rng.offset);
  }
  return rng;
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

  static constexpr bool kReads = true;
  template <typename Wait>
  __device__ Row row(int64_t step, int64_t columns, const Wait& wait) const {
    const typename Base::Row base = Base::row(step, columns, wait);
    if constexpr (!Base::kReads) {
      wait();
    }
    const Row row = settled_row(base, columns);
    note_used(row);
    return row;
  }

  /// The same before the kernel before this one has ended, where nothing that it writes is needed;
  /// note_used() is for later.
  __device__ Row row_ahead(int64_t step, int64_t columns) const {
    return settled_row(Base::row(step, columns, [] {}), columns);
  }

  __device__ void note_used(const Row& row) const {
    if (used != nullptr && row.first == 0) {
      used[0] = static_cast<int64_t>(row.rng.seed);
      used[1] = static_cast<int64_t>(row.rng.offset);
    }
  }

 private:
  __device__ Row settled_row(const typename Base::Row& base, int64_t columns) const {
    Row row;
    static_cast<typename Base::Row&>(row) = base;
    row.first = row.index * columns;
    const Rng rng = source.get();
    row.rng = {uniform(rng.seed), uniform(rng.offset)};
    if (statistics != nullptr && row.index >= 0) {
      row.max = statistics[2 * row.index];
      row.log_sum = statistics[2 * row.index + 1];
    }
    return row;
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
    // A row without a key (its statistics say so) has zeros, whatever NaN its scores hold.
    const bool empty = row.max == C(INFINITY) && row.log_sum == C(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = empty ? C(0) : probability<T>(x[i] - row.max, row.log_sum);
    }
  }
};

}  // namespace warpfuse::cuda
