#pragma once

#include <algorithm>
#include <type_traits>

#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

/// An element of a boolean mask: not zero where the key is visible.
using MaskByte = unsigned char;

/// In place of the elements of a mask tensor that hides nothing.
struct NoMaskTensor {};

/// The elements M of a mask tensor for kCount keys in a row.
template <typename M, int kCount>
class MaskPack {
 public:
  static constexpr bool kBoolean = std::is_same_v<M, MaskByte>;

  /// Elements `stride` apart.
  __device__ static MaskPack gather(const M* from, int64_t stride) {
    M elements[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      elements[i] = from[i * stride];
    }
    MaskPack pack;
    memcpy(pack.words_, elements, sizeof(elements));
    return pack;
  }

  /// Elements that follow one another, by aligned words: up to kOvershoot elements behind them are
  /// read too.
  static constexpr int kOvershoot = 3 / sizeof(M);
  __device__ static MaskPack load(const M* from) {
    MaskPack pack;
    const auto address = reinterpret_cast<uintptr_t>(from);
    if constexpr (kBytes >= 4) {
      using Vector =
          std::conditional_t<kBytes == 4, unsigned, std::conditional_t<kBytes == 8, uint2, uint4>>;
      if (address % sizeof(Vector) == 0) {
#pragma unroll
        for (int i = 0; i < kBytes; i += sizeof(Vector)) {
          const Vector vector = reinterpret_cast<const Vector*>(from)[i / sizeof(Vector)];
          memcpy(pack.words_ + i / 4, &vector, sizeof(vector));
        }
        return pack;
      }
    }
    const int shift = sizeof(M) < 4 ? static_cast<int>(address % 4) : 0;
    const auto* const words = reinterpret_cast<const unsigned*>(address - shift);
    unsigned low = words[0];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const bool needed = i + 1 < kWords || shift + kBytes > 4 * kWords;
      const unsigned high = needed ? words[i + 1] : 0;
      pack.words_[i] = __funnelshift_r(low, high, 8 * shift);
      low = high;
    }
    return pack;
  }

  /// Of a boolean mask.
  __device__ bool visible(int i) const { return (words_[i / 4] & 0xffu << i % 4 * 8) != 0; }
  __device__ bool any_visible() const {
    unsigned any = 0;
#pragma unroll
    for (const unsigned word : words_) {
      any |= word;
    }
    return (kBytes < 4 ? any & 0xffffu : any) != 0;
  }

  /// Of an additive mask.
  template <typename C>
  __device__ void values(C (&values)[kCount]) const {
    M elements[kCount];
    memcpy(elements, words_, sizeof(elements));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = static_cast<C>(to_compute(elements[i]));
    }
  }

  /// Hides the elements for which inside(i) is false.
  template <typename Inside>
  __device__ void hide_unless(const Inside& inside) {
    M elements[kCount];
    memcpy(elements, words_, sizeof(elements));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (!inside(i)) {
        if constexpr (kBoolean) {
          elements[i] = 0;
        } else {
          elements[i] = from_compute<M>(negative_infinity<Compute<M>>());
        }
      }
    }
    memcpy(words_, elements, sizeof(elements));
  }

 private:
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(M));
  static constexpr int kWords = std::max(kBytes / 4, 1);

  unsigned words_[kWords];
};

template <int kCount>
class MaskPack<NoMaskTensor, kCount> {
 public:
  static constexpr bool kBoolean = false;
  static constexpr int kOvershoot = 0;
  __device__ static MaskPack load(const NoMaskTensor*) { return {}; }
  __device__ static MaskPack gather(const NoMaskTensor*, int64_t) { return {}; }
};

}  // namespace warpfuse::cuda
