#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cached_attention_softmax/prompt_slots.cuh"
#include "common/unrolled.cuh"
#include "rowwise/cuda/math.cuh"
#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {

/// Softmax of the scores of a lane's two rows, tile after tile, in base 2. Element [j][2 i + k] is
/// that of row i and column 8 j + 2 c + k, where c is the lane's rank in its quad.
struct RowSoftmax {
  float shift[2] = {-INFINITY, -INFINITY};  // of exponents
  float sum[2] = {0, 0};                    // of this lane's columns

  /// Scores become weights, at most 2^kGrowth. `by` is what earlier weights are to be multiplied
  /// by: 1 unless a maximum has grown by more than that.
  __device__ __forceinline__ void add(float (&s)[kTileSlots / 8][4], float factor, float (&by)[2]) {
    float max[2] = {-INFINITY, -INFINITY};
    unrolled<kTileSlots / 8>([&](int c) {
      max[0] = fmaxf(max[0], fmaxf(s[c][0], s[c][1]));
      max[1] = fmaxf(max[1], fmaxf(s[c][2], s[c][3]));
    });
#pragma unroll
    for (int lane = 1; lane < kQuad; lane *= 2) {
#pragma unroll
      for (float& value : max) {
        value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
      }
    }
    float subtracted[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float next = max[i] * factor > shift[i] + kGrowth ? max[i] * factor : shift[i];
      subtracted[i] = next == -INFINITY ? 0.0f : next;
      by[i] = fast_exp2(shift[i] - subtracted[i]);
      shift[i] = next;
    }
    float sums[4] = {};
    unrolled<kTileSlots / 2>([&](int e) {
      s[e / 4][e % 4] = fast_exp2(fmaf(s[e / 4][e % 4], factor, -subtracted[e % 4 / 2]));
      sums[e % 4] += s[e / 4][e % 4];
    });
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = fmaf(sum[i], by[i], sums[2 * i] + sums[2 * i + 1]);
    }
  }

  /// The same of the first tile.
  __device__ __forceinline__ void add(float (&s)[kTileSlots / 8][4], float factor) {
    float by[2];
    add(s, factor, by);
  }

  /// The same in half precision without a search for the maximum: the shifts stay. False, and
  /// nothing has changed, where a weight is above 2^kGrowth.
  template <typename T>
  __device__ __forceinline__ bool add_below(const float (&s)[kTileSlots / 8][4], float factor,
                                            unsigned (&weights)[kTileSlots / 16][4]) {
    unsigned largest = 0;
    float sums[4] = {};
    unrolled<kTileSlots / 4>([&](int e) {
      const int step = e / 4, i = e % 4;
      const float weight[] = {
          fast_exp2(fmaf(s[2 * step + i / 2][i % 2 * 2], factor, -shift[i % 2])),
          fast_exp2(fmaf(s[2 * step + i / 2][i % 2 * 2 + 1], factor, -shift[i % 2]))};
      sums[i % 2 * 2] += weight[0];
      sums[i % 2 * 2 + 1] += weight[1];
      weights[step][i] = pack_word(weight, T());
      largest = larger_pair(largest, weights[step][i], T());
    });
    const bool above = exceeds(largest, T()) || shift[0] == -INFINITY || shift[1] == -INFINITY;
    if (__any_sync(~0u, above)) {
      return false;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += sums[2 * i] + sums[2 * i + 1];
    }
    return true;
  }

  /// Multiplies a lane's elements of both rows; seldom needed after the first tiles.
  template <int kColumns>
  __device__ __forceinline__ static void scale(float (&o)[kColumns][4], const float (&by)[2]) {
    if (__any_sync(~0u, by[0] != 1 || by[1] != 1)) {
      unrolled<kColumns * 4>([&](int e) { o[e / 4][e % 4] *= by[e % 4 / 2]; });
    }
  }

 private:
  static constexpr float kGrowth = 8;  // weights of float16 end at 2^16

  __device__ static unsigned larger_pair(unsigned a, unsigned b, __half) {
    asm("max.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  __device__ static unsigned larger_pair(unsigned a, unsigned b, __nv_bfloat16) {
    asm("max.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
  }
  /// Whether one of two weights is above the limit. They are not negative, so their bits compare as
  /// integers.
  __device__ static bool exceeds(unsigned pair, __half) {
    constexpr unsigned kLimit = 0x5c00;  // 2^8
    return max(pair & 0xffff, pair >> 16) > kLimit;
  }
  __device__ static bool exceeds(unsigned pair, __nv_bfloat16) {
    constexpr unsigned kLimit = 0x4380;  // 2^8
    return max(pair & 0xffff, pair >> 16) > kLimit;
  }
};

/// Scores of a negative scale count as those of the opposite one.
__device__ __forceinline__ void negate(float (&s)[kTileSlots / 8][4]) {
  unrolled<kTileSlots / 2>([&](int e) { s[e / 4][e % 4] = -s[e / 4][e % 4]; });
}

/// What a score is multiplied by for exponents in base 2. Not 0, so that hidden scores stay -inf.
__device__ __forceinline__ float exponent_factor(float scale) {
  return fmaxf(fabsf(scale) * kLog2E, 1e-37f);
}

}  // namespace warpfuse::cuda
