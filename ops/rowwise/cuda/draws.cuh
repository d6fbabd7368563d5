#pragma once

#include "common/dropout.h"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// The half words of two elements against an even `least`: all bits of a half are set where its
/// element is kept. One instruction compares them, as positive halves are in the order of their
/// bits, and those above infinity, no numbers, compare as the largest.
__device__ __forceinline__ unsigned mask_of_kept(unsigned word, unsigned least) {
  unsigned mask;
  asm("set.geu.u32.f16x2 %0, %1, %2;"
      : "=r"(mask)
      : "r"(word >> 1 & 0x7fff7fff), "r"((least >> 1) * 0x10001));
  return mask;
}
/// Dropout::upper below this: for larger ones `least` is no number itself.
inline constexpr uint32_t kComparableUpper = 2 * 0x7c00;

/// Which elements of a pack are kept, a bit each.
struct KeptBits {
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
struct KeptFactors {
  unsigned pairs[4] = {0, 0, 0, 0};

  template <int kPairs>
  __device__ __forceinline__ void set_pairs(const uint32_t (&words)[kPairs], uint32_t least) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = mask_of_kept(words[i], least) & ones();
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
using KeptOf = std::conditional_t<sizeof(T) == 2, KeptFactors<T>, KeptBits>;

/// What is dropped, as the functors below apply it: by factors of 0 and 1, as ATen does, and the
/// scale later.
template <typename C>
struct Drop {
  Dropout dropout;
  C scale;

  explicit Drop(const Dropout& dropout) : dropout(dropout), scale(static_cast<C>(dropout.scale)) {}

  /// For kPacks times kCount elements, the first at `column`, the others `apart` elements, a
  /// multiple of kCount, from there. kByWarp: all lanes of a warp call it, each for others.
  template <int kCount, bool kByWarp = false, int kPacks, typename Row, typename Kept>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       Kept (&kept)[kPacks]) const {
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
          kept[i] = draw_within_block<kCount, Kept>(row.rng, first + i * apart);
        }
        return;
      }
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
    Kept kept;
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
                                                      KeptBits (&kept)[kPacks]) const {
    static_assert(kPacks / 2 * kDropoutBlock <= 32);
    const bool odd = threadIdx.x % 2 != 0;
    unsigned mine = 0;
#pragma unroll
    for (int i = 0; i < kPacks; i += 2) {
      const uint64_t at = first + (odd ? i + 1 : i) * apart;
      mine |= draw_within_block<kDropoutBlock, KeptBits>(rng, at).bits << i / 2 * kDropoutBlock;
    }
    const unsigned others = __shfl_xor_sync(0xffffffffu, mine, 1);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const unsigned blocks = odd == (i % 2 != 0) ? mine : others;
      kept[i].bits = blocks >> (i / 2 * kDropoutBlock + (odd ? kCount : 0));
    }
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

}  // namespace warpfuse::cuda
