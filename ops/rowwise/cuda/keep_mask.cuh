#pragma once

#include <type_traits>

#include "common/dropout.h"
#include "rowwise/cuda/pack.cuh"

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
  /// Bit i of `wanted`, i even, is that of packs i and i + 1; all lanes of a warp pass the same.
  template <int kCount, int kPacks, typename Row, typename Mask>
  __device__ __forceinline__ void draw(const Row& row, int64_t column, int64_t apart,
                                       Mask (&masks)[kPacks], unsigned wanted = ~0u) const {
    const auto first = static_cast<uint64_t>(row.first + column);
    const auto draw_each = [&](const auto& draw_one) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if ((wanted >> (i - i % 2) & 1) != 0) {
          masks[i] = draw_one(first + i * apart);
        }
      }
    };
    if constexpr (kCount > 1) {
      if (first % kCount == 0 && rule.upper < kComparableUpper) {
        draw_each([&](uint64_t at) { return draw_within_block<kCount, Mask>(row.rng, at); });
        return;
      }
    }
    draw_each([&](uint64_t at) { return draw_anywhere<kCount, Mask>(row.rng, at); });
  }

  /// draw() for a call by all lanes of a warp: where two neighbouring lanes have the halves of
  /// Philox blocks, each draws whole blocks for every other pack of both.
  template <int kCount, int kPacks, typename Row, typename Mask>
  __device__ __forceinline__ void draw_by_warp(const Row& row, int64_t column, int64_t apart,
                                               Mask (&masks)[kPacks], unsigned wanted) const {
    if constexpr (2 * kCount == kDropoutBlock && kPacks % 2 == 0) {
      const auto first = static_cast<uint64_t>(row.first + column);
      if (rule.upper < kComparableUpper && shares_blocks<kCount>(first, apart)) {
        draw_with_neighbour<kCount>(row.rng, first, apart, masks, wanted);
        return;
      }
    }
    draw<kCount>(row, column, apart, masks, wanted);
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
                                                      KeepBits (&masks)[kPacks],
                                                      unsigned wanted) const {
    static_assert(kPacks / 2 * kDropoutBlock <= 32);
    const bool odd = threadIdx.x % 2 != 0;
    unsigned own = 0;
#pragma unroll
    for (int i = 0; i < kPacks; i += 2) {
      if ((wanted >> i & 1) != 0) {
        const uint64_t at = first + (odd ? i + 1 : i) * apart;
        own |= draw_within_block<kDropoutBlock, KeepBits>(rng, at).bits << i / 2 * kDropoutBlock;
      }
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

}  // namespace warpfuse::cuda
