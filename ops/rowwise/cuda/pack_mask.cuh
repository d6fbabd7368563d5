#pragma once

#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// The first elements of a pack: where the visible part of a row begins or ends inside one.
template <typename T>
class PackMask {
 public:
  /// So many; fewer than none are none, and more than a pack holds are all.
  __device__ explicit PackMask(int elements)
      : first_{bits(elements, 0), bits(elements, 1), bits(elements, 2), bits(elements, 3)} {}

  /// `pack` with every word of the elements after the first ones that of `other`.
  __device__ void keep_first(uint4& pack, unsigned other) const { mix(pack, first_, other); }
  /// The same with the first ones.
  __device__ void keep_rest(uint4& pack, unsigned other) const {
    mix(pack, {~first_.x, ~first_.y, ~first_.z, ~first_.w}, other);
  }

 private:
  __device__ static unsigned bits(int elements, int word) {
    unsigned mask;  // as many low bits; 32 are all
    asm("bmsk.clamp.b32 %0, 0, %1;"
        : "=r"(mask)
        : "r"(max(elements * 8 * static_cast<int>(sizeof(T)) - 32 * word, 0)));
    return mask;
  }
  __device__ static void mix(uint4& pack, const uint4& kept, unsigned other) {
    pack.x = (pack.x & kept.x) | (other & ~kept.x);
    pack.y = (pack.y & kept.y) | (other & ~kept.y);
    pack.z = (pack.z & kept.z) | (other & ~kept.z);
    pack.w = (pack.w & kept.w) | (other & ~kept.w);
  }

  uint4 first_;
};

}  // namespace warpfuse::cuda
