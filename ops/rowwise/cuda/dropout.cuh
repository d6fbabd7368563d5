#pragma once

#include "common/dropout.h"
#include "rowwise/cuda/forward_sums.cuh"
#include "rowwise/cuda/mask.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// The half words of two elements against an even `least`: all bits of a half are set where its
/// element is kept. One instruction compares them, as positive halves are in the order of their
/// bits, and those above infinity, no numbers, compare as the largest.
__device__ __forceinline__ unsigned keep_halves(unsigned word, unsigned least) {
  unsigned mask;
  asm("set.geu.u32.f16x2 %0, %1, %2;"
      : "=r"(mask)
      : "r"(word >> 1 & 0x7fff7fff), "r"((least >> 1) * 0x10001));
  return mask;
}
/// Dropout::upper below this: for larger ones `least` is no number itself.
inline constexpr uint32_t kComparableUpper = 2 * 0x7c00;

/// Which elements of a pack are kept, a bit each.
struct KeepBits {
  unsigned bits = 0;

  /// From the words of pairs.
  template <int kPairs>
  __device__ __forceinline__ void set_pairs(const uint32_t (&words)[kPairs], uint32_t least) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      set(2 * i, words[i] << 16 >= least << 16);
      set(2 * i + 1, words[i] >= least << 16);
    }
  }
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
struct KeepFactors {
  unsigned pairs[4] = {0, 0, 0, 0};

  template <int kPairs>
  __device__ __forceinline__ void set_pairs(const uint32_t (&words)[kPairs], uint32_t least) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = keep_halves(words[i], least) & ones();
    }
  }
  __device__ __forceinline__ void set(int i, bool kept) {
    pairs[i / 2] |= kept ? ones() & (i % 2 == 0 ? 0x0000ffffu : 0xffff0000u) : 0;
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

/// What is drawn to multiply elements of type T.
template <typename T>
using PackedKeepMask = std::conditional_t<sizeof(T) == 2, KeepFactors<T>, KeepBits>;

/// What is dropped, as the functors below apply it: by factors of 0 and 1, as ATen does, and the
/// scale later.
template <typename C>
struct DropoutMask {
  Dropout dropout;
  C scale;

  explicit DropoutMask(const Dropout& dropout)
      : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  /// For kPacks times kCount elements, the first at `column`, the others `apart` elements, a
  /// multiple of kCount, from there. kByWarp: all lanes of a warp call it, each for others.
  template <int kCount, bool kByWarp = false, int kPacks, typename Row, typename Keep>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       Keep (&kept)[kPacks]) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    if constexpr (kByWarp && 2 * kCount == kDropoutBlock && kPacks % 2 == 0) {
      if (dropout.upper < kComparableUpper && halves_neighbour<kCount>(first, apart)) {
        draw_with_neighbour<kCount>(row.rng, first, apart, kept);
        return;
      }
    }
    if constexpr (kCount > 1) {
      if (first % kCount == 0 && dropout.upper < kComparableUpper) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i) {
          kept[i] = draw_within_block<kCount, Keep>(row.rng, first + i * apart);
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      kept[i] = draw_anywhere<kCount, Keep>(row.rng, first + i * apart);
    }
  }

 private:
  /// Elements that are 1/4, 1/2 or all of a block.
  template <int kCount, typename Keep>
  __device__ __forceinline__ Keep draw_within_block(const Rng& rng, uint64_t first) const {
    const PhiloxBlock draws = philox(rng.seed, first / kDropoutBlock, rng.offset);
    const uint32_t least = dropout.least_kept(draws);
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
    Keep kept;
    kept.set_pairs(words, least);
    return kept;
  }

  /// Whether each even lane of the warp and the next one have the halves of blocks.
  template <int kCount>
  __device__ __forceinline__ static bool halves_neighbour(uint64_t first, int64_t apart) {
    const bool odd = threadIdx.x % 2 != 0;
    return __all_sync(0xffffffffu, first % kDropoutBlock == (odd ? kCount : 0) &&
                                       apart % kDropoutBlock == 0) != 0;
  }
  /// Then each of the two draws for every other pack of both.
  template <int kCount, int kPacks>
  __device__ __forceinline__ void draw_with_neighbour(const Rng& rng, uint64_t first, int64_t apart,
                                                      KeepBits (&kept)[kPacks]) const {
    static_assert(kPacks / 2 * kDropoutBlock <= 32);
    const bool odd = threadIdx.x % 2 != 0;
    unsigned mine = 0;
#pragma unroll
    for (int i = 0; i < kPacks; i += 2) {
      const uint64_t at = first + (odd ? i + 1 : i) * apart;
      mine |= draw_within_block<kDropoutBlock, KeepBits>(rng, at).bits << i / 2 * kDropoutBlock;
    }
    const unsigned others = __shfl_xor_sync(0xffffffffu, mine, 1);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const unsigned blocks = odd == (i % 2 != 0) ? mine : others;
      kept[i].bits = blocks >> (i / 2 * kDropoutBlock + (odd ? kCount : 0));
    }
  }

  /// In few registers and instructions: packs are seldom unaligned.
  template <int kCount, typename Keep>
  __device__ __forceinline__ Keep draw_anywhere(const Rng& rng, uint64_t first) const {
    unsigned bits = 0;
#pragma unroll 1
    for (int i = 0; i < (kCount > 1 ? 2 : 1); ++i) {
      bits |= kept_of_block(dropout, rng, first / kDropoutBlock + i) << (i * kDropoutBlock);
    }
    bits >>= first % kDropoutBlock;
    Keep kept;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      kept.set(i, (bits >> i & 1) != 0);
    }
    return kept;
  }
};

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
struct DropoutRowContext : Base {
  struct Row : Base::Row {
    int64_t first;  // element of the row, counted over all rows
    Rng rng;
    C max, log_sum;  // of the scores, in the backward where softmax came first
  };

  RngSource source;
  int64_t* used;        // [2] or null: seed and offset are written there
  const C* statistics;  // [rows, 2] or null

  DropoutRowContext(const Base& base, const RngSource& source, int64_t* used, const C* statistics)
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
  __device__ Row row_before_wait(int64_t step, int64_t columns) const {
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
  using Mask = DropoutRowContext<NoMask, Compute<T>>;
  using KeepMask = PackedKeepMask<T>;
  static constexpr bool kPlain = true;
  static constexpr bool kAlters = true;
  static constexpr bool kScales = true;
  Mask mask;
  DropoutMask<Compute<T>> drop;

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
  using KeepMask = KeepBits;

  DropoutMask<C> drop;
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
  __device__ static void finish(const KeepMask& kept, C zero, C (&values)[kCount]) {
    kept.replace(zero, values);
  }
};

// --- backward ---------------------------------------------------------------------------------

/// Dropout came first: the gradient of what softmax took is dropped.
template <typename T>
struct DropoutFirst {
  static constexpr bool kChanges = false;
  static constexpr bool kFinishes = true;
  using KeepMask = KeepBits;
  DropoutMask<Compute<T>> drop;

  template <int kCount>
  __device__ static void finish(const KeepMask& kept, Compute<T> zero,
                                Compute<T> (&values)[kCount]) {
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
  using KeepMask = PackedKeepMask<T>;
  Load load;
  DropoutMask<C> drop;

  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool, const KeepMask& kept, C (&y)[1],
                         C (&g)[1]) const {
    probabilities(row, column, true, y);
    kept.multiply(g);
  }
  template <typename Row>
  __device__ void change(const Row& row, int64_t column, bool full, const KeepMask& kept, uint4& y,
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
