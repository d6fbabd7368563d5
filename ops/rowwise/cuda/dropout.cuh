#pragma once

#include "common/dropout.h"
#include "rowwise/cuda/forward_sums.cuh"

namespace warpfuse::cuda {

// --- keep masks: which elements of a pack dropout keeps ---------------------------------------

/// Compares the half words of two elements with an even `least` by one HSET2: all bits of a half
/// are set where its element is kept. Positive fp16 values order like their bit patterns; NaN
/// patterns compare as kept (geu).
__device__ __forceinline__ unsigned keep_halves(unsigned word, unsigned least) {
  unsigned mask;
  asm("set.geu.u32.f16x2 %0, %1, %2;"
      : "=r"(mask)
      : "r"(word >> 1 & 0x7fff7fff), "r"((least >> 1) * 0x10001));
  return mask;
}
/// Dropout::upper is below this, else `least` would itself be a NaN pattern.
inline constexpr uint32_t kComparableUpper = 2 * 0x7c00;

/// One bit an element.
struct KeepBits {
  unsigned bits = 0;

  /// From the random words of pairs of elements.
  template <int kPairs>
  __device__ __forceinline__ void set_pairs(const uint32_t (&words)[kPairs], uint32_t least) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      set(2 * i, words[i] << 16 >= least << 16);
      set(2 * i + 1, words[i] >= least << 16);
    }
  }
  __device__ __forceinline__ void set(int i, bool keep) { bits |= (keep ? 1u : 0u) << i; }

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

/// Half precision factors, 1 where an element is kept: packed products take half the instructions.
template <typename T>
struct KeepFactors {
  unsigned pairs[4] = {0, 0, 0, 0};

  template <int kPairs>
  __device__ __forceinline__ void set_pairs(const uint32_t (&words)[kPairs], uint32_t least) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = keep_halves(words[i], least) & ones();
    }
  }
  __device__ __forceinline__ void set(int i, bool keep) {
    pairs[i / 2] |= keep ? ones() & (i % 2 == 0 ? 0x0000ffffu : 0xffff0000u) : 0;
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
  __device__ __forceinline__ static unsigned ones() {
    constexpr float kOnes[2] = {1.0f, 1.0f};
    return pack_word(kOnes, T());
  }
  __device__ __forceinline__ static unsigned product(unsigned a, unsigned b) {
    return combine_pairs<T>(a, b, [](auto x, auto y) { return __hmul2(x, y); });
  }
};

/// The keep mask that raw packs of T are multiplied by.
template <typename T>
using PackedKeepMask = std::conditional_t<sizeof(T) == 2, KeepFactors<T>, KeepBits>;

/// Draws keep masks. Elements are multiplied by 0 or 1, as ATen does, and by `scale` later.
template <typename C>
struct DropoutMask {
  Dropout rule;
  C scale;

  explicit DropoutMask(const Dropout& rule) : rule(rule), scale(static_cast<C>(rule.scale)) {}

  /// masks[i] is that of kCount elements from column + i * apart on; apart is a multiple of kCount.
  template <int kCount, int kPacks, typename Row, typename Mask>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       Mask (&masks)[kPacks]) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if constexpr (kCount > 1) {
      if (first % kCount == 0 && rule.upper < kComparableUpper) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          masks[i] = draw_within_block<kCount, Mask>(row.rng, first + i * apart);
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      masks[i] = draw_anywhere<kCount, Mask>(row.rng, first + i * apart);
    }
  }

  /// draw() for a call by all lanes of a warp: where two neighbouring lanes have the halves of
  /// Philox blocks, each draws whole blocks for every other pack of both.
  template <int kCount, int kPacks, typename Row, typename Mask>
  __device__ __forceinline__ void draw_by_warp(const Row& row, int64_t column, int64_t apart,
                                               Mask (&masks)[kPacks]) const {
    if constexpr (2 * kCount == kDropoutBlock && kPacks % 2 == 0) {
      const auto first = static_cast<uint64_t>(row.first + column);
      if (rule.upper < kComparableUpper && shares_blocks<kCount>(first, apart)) {
        draw_with_neighbour<kCount>(row.rng, first, apart, masks);
        return;
      }
    }
    draw<kCount>(row, column, apart, masks);
  }

 private:
  /// For elements that are 1/4, 1/2 or all of a Philox block.
  template <int kCount, typename Mask>
  __device__ __forceinline__ Mask draw_within_block(const Rng& rng, uint64_t first) const {
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const uint32_t least = rule.least_kept(draws);
    const int part = static_cast<int>(first % kDropoutBlock) / kCount;
    uint32_t words[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      words[i] = draws.words[i];
#pragma unroll
      for (int other = 1; other < kDropoutBlock / kCount; ++other) {
        words[i] = part == other ? draws.words[other * (kCount / 2) + i] : words[i];
      }
    }
    Mask mask;
    mask.set_pairs(words, least);
    return mask;
  }

  /// Whether each even lane of the warp and the next one have the halves of the same blocks.
  template <int kCount>
  __device__ __forceinline__ static bool shares_blocks(uint64_t first, int64_t apart) {
    const bool odd = threadIdx.x % 2 != 0;
    return __all_sync(0xffffffffu, first % kDropoutBlock == (odd ? kCount : 0) &&
                                       apart % kDropoutBlock == 0) != 0;
  }
  template <int kCount, int kPacks>
  __device__ __forceinline__ void draw_with_neighbour(const Rng& rng, uint64_t first, int64_t apart,
                                                      KeepBits (&masks)[kPacks]) const {
    static_assert(kPacks / 2 * kDropoutBlock <= 32);
    const bool odd = threadIdx.x % 2 != 0;
    unsigned own = 0;
#pragma unroll
    for (int i = 0; i < kPacks; i += 2) {
      const uint64_t at = first + (odd ? i + 1 : i) * apart;
      own |= draw_within_block<kDropoutBlock, KeepBits>(rng, at).bits << i / 2 * kDropoutBlock;
    }
    const unsigned neighbours = __shfl_xor_sync(0xffffffffu, own, 1);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const unsigned blocks = odd == (i % 2 != 0) ? own : neighbours;
      masks[i].bits = blocks >> (i / 2 * kDropoutBlock + (odd ? kCount : 0));
    }
  }

  /// For packs that straddle Philox blocks. They are rare: few registers and instructions count.
  template <int kCount, typename Mask>
  __device__ __forceinline__ Mask draw_anywhere(const Rng& rng, uint64_t first) const {
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < (kCount > 1 ? 2 : 1); ++i) {
      bits |= kept_of_block(rule, rng, first / kDropoutBlock + i) << (i * kDropoutBlock);
    }
    bits >>= first % kDropoutBlock;
    Mask mask;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      mask.set(i, (bits >> i & 1) != 0);
    }
    return mask;
  }
};

// --- the random state of a row ----------------------------------------------------------------

/// Makes warp-uniform values visible as such, so that Philox's round keys live in uniform
/// registers. All lanes of the warp call it with equal values.
__device__ __forceinline__ uint64_t uniform(uint64_t x) {
#if __CUDA_ARCH__ >= 800
  const unsigned low = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x));
  const unsigned high = __reduce_or_sync(0xffffffffu, static_cast<unsigned>(x >> 32));
  return static_cast<uint64_t>(high) << 32 | low;
#else
  return x;
#endif
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

  template <int kCount>
  __device__ void scores(const typename Mask::Row&, int64_t, bool, Compute<T> (&)[kCount],
                         bool&) const {}
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
  __device__ void recompute(const Row& row, int64_t column, const KeepMask& mask, C (&y)[1],
                            C (&g)[1]) const {
    probabilities(row, column, true, y);
    mask.multiply(g);
  }
  template <typename Row>
  __device__ void recompute(const Row& row, int64_t column, bool full, const KeepMask& mask,
                            uint4& y, uint4& g) const {
    C values[kPack<T>];
    unpack<T>(y, values);
    probabilities(row, column, full, values);
    y = pack_bits<T>(values);
    mask.template multiply_pack<T>(g);
  }

 private:
  template <typename Row, int kCount>
  __device__ void probabilities(const Row& row, int64_t column, bool full, C (&x)[kCount]) const {
    bool visible = true;
    load.scores(row, column, full, x, visible);
    // A row without a visible key (its statistics say so) has zeros, whatever NaN its scores hold.
    const bool empty = row.max == C(INFINITY) && row.log_sum == C(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = empty ? C(0) : probability<T>(x[i] - row.max, row.log_sum);
    }
  }
};

}  // namespace warpfuse::cuda
