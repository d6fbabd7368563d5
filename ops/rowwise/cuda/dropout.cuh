#pragma once

#include "rowwise/cuda/forward_sums.cuh"
#include "rowwise/cuda/keep_mask.cuh"

namespace warpfuse::cuda {

// --- the random state of a row ----------------------------------------------------------------

/// Makes warp-uniform values visible as such, so that Philox's round keys live in uniform
/// registers. All lanes of the warp call it with equal values.
__device__ __forceinline__ uint64_t uniform(uint64_t x) {
  const unsigned low = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x));
  const unsigned high = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x >> 32));
  return static_cast<uint64_t>(high) << 32 | low;
}

/// The random state of a kernel. Its first thread stores seed and offset in used[2] unless null.
__device__ inline Rng rng_of_kernel(const RngSource& source, int64_t* used) {
  const Rng rng = source.get();
  if (used != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    used[0] = static_cast<int64_t>(rng.seed);
    used[1] = static_cast<int64_t>(rng.offset);
  }
  return rng;
}

/// A mask whose rows also know their random state and the statistics that the forward pass saved.
template <typename Base, typename C>
struct DropoutRowContext : Base {
  static constexpr bool kReads = true;

  struct Row : Base::Row {
    int64_t first;  // element of the row, counted over all rows
    Rng rng;
    C max, log_sum;  // of the scores; in the backward pass of softmax and then dropout
  };

  RngSource source;
  int64_t* used;        // [2] or null: seed and offset are stored there
  const C* statistics;  // [rows, 2] or null

  DropoutRowContext(const Base& base, const RngSource& source, int64_t* used, const C* statistics)
      : Base(base), source(source), used(used), statistics(statistics) {}

  template <typename Wait>
  __device__ Row row(int64_t step, int64_t columns, const Wait& wait) const {
    const typename Base::Row base = Base::row(step, columns, wait);
    if constexpr (!Base::kReads) {
      wait();
    }
    const Row row = with_context(base, columns);
    note_used(row);
    return row;
  }

  /// row() before the previous kernel has ended, where it writes nothing that this reads;
  /// note_used() follows the wait.
  __device__ Row row_before_wait(int64_t step, int64_t columns) const {
    return with_context(Base::row(step, columns, [] {}), columns);
  }
  __device__ void note_used(const Row& row) const {
    if (used != nullptr && row.first == 0) {
      used[0] = static_cast<int64_t>(row.rng.seed);
      used[1] = static_cast<int64_t>(row.rng.offset);
    }
  }

 private:
  __device__ Row with_context(const typename Base::Row& base, int64_t columns) const {
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

/// Dropout before the softmax: a Load.
template <typename T>
struct DropoutLoad {
  using Element = T;
  using Mask = DropoutRowContext<NoMask, Compute<T>>;
  using KeepMask = PackedKeepMask<T>;
  static constexpr bool kPlain = true;
  static constexpr bool kDropout = true;
  Mask mask;
  DropoutMask<Compute<T>> dropout;

  /// dropout.scale; where all elements are dropped, any finite number does.
  __device__ Compute<T> exponent_scale() const {
    return dropout.scale == Compute<T>(0) ? Compute<T>(1) : dropout.scale;
  }
  /// The greatest that is no greater than that.
  __device__ float power_of_two() const {
    return __uint_as_float(__float_as_uint(static_cast<float>(exponent_scale())) & 0x7f800000u);
  }

  template <int kCount>
  __device__ void scores(const typename Mask::Row&, int64_t, bool, Compute<T> (&)[kCount],
                         bool&) const {}
  __device__ void score(const MaskElement<Compute<T>>&, Compute<T>&, bool&) const {}
};

/// Dropout after the softmax: a Store, which notes a row's maximum and log-sum. A row without a
/// visible key gets an infinite maximum: all its probabilities come out 0.
template <typename T>
struct DropoutStore : ProbabilityStore<T> {
  using C = Compute<T>;
  using KeepMask = KeepBits;
  static constexpr bool kDropout = true;

  DropoutMask<C> dropout;
  C* statistics;  // [rows, 2] or null

  __device__ C factor(C sum) const { return dropout.scale / sum; }

  template <typename Row>
  __device__ void note(const Row& row, C max, C sum, bool empty) const {
    if (statistics != nullptr && row.index >= 0) {
      statistics[2 * row.index] = empty ? C(INFINITY) : max;
      statistics[2 * row.index + 1] = empty ? C(0) : logarithm(sum / kExponentialUnit<T>);
    }
  }

  template <int kCount>
  __device__ static void finish(const KeepMask& mask, C zero, C (&values)[kCount]) {
    mask.replace(zero, values);
  }
};

// --- backward: inputs of Backward (backward.cuh) ----------------------------------------------

/// Dropout before the softmax: the gradient of the softmax's input is dropped.
template <typename T>
struct DropoutFirst {
  static constexpr DropoutOrder kOrder = DropoutOrder::before_softmax;
  using KeepMask = KeepBits;
  DropoutMask<Compute<T>> dropout;
};

/// Dropout after the softmax: the output has lost the dropped probabilities, so they are computed
/// again from the input and rounded to T as a saved output would be. g is dropped; its scale is a
/// factor of the result.
template <typename Load>
struct SoftmaxFirst {
  static constexpr DropoutOrder kOrder = DropoutOrder::after_softmax;
  using T = typename Load::Element;
  using C = Compute<T>;
  using KeepMask = PackedKeepMask<T>;
  Load load;
  DropoutMask<C> dropout;

  template <typename Row>
  __device__ void recompute(const Row& row, const MaskElement<C>& mask_element,
                            const KeepMask& keep_mask, C (&y)[1], C (&g)[1]) const {
    bool visible = true;
    load.score(mask_element, y[0], visible);
    to_probabilities(row, y);
    keep_mask.multiply(g);
  }
  template <typename Row, typename... MaskPacks>
  __device__ void recompute(const Row& row, int64_t column, bool full, const KeepMask& keep_mask,
                            uint4& y, uint4& g, const MaskPacks&... mask_pack) const {
    C values[kPack<T>];
    unpack<T>(y, values);
    bool visible = true;
    load.scores(row, column, full, values, visible, mask_pack...);
    to_probabilities(row, values);
    y = pack_bits<T>(values);
    keep_mask.template multiply_pack<T>(g);
  }

 private:
  template <typename Row, int kCount>
  __device__ void to_probabilities(const Row& row, C (&x)[kCount]) const {
    // A row without a visible key (its statistics say so) has zeros, whatever NaN its scores hold.
    const bool empty = row.max == C(INFINITY) && row.log_sum == C(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = empty ? C(0) : probability<T>(rounded_difference(x[i], row.max), row.log_sum);
    }
  }
};

}  // namespace warpfuse::cuda
