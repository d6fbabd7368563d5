#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// Products of float32 by the tensor cores of float16. Scaled by a power of two, a factor is the sum
// of a high and a low piece of float16, which keep 22 of its 24 bits:
//
//   x w = xh wh + xl wh + xh wl, but for the product of the low pieces, 2^-22 of it
//
// The input is split once, with a scale per row; the weight in registers, with a scale per row and
// kSplitElements. (H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores
// while surpassing the FP32 theoretical peak performance", 2022.)

/// Elements of a row that are split and multiplied together: two stages of the weight, and two of
/// the input, its high pieces and its low ones.
inline constexpr int kSplitElements = 64;

/// The exponent field that a scale gives the largest of its elements, which is then below 2^14: far
/// from float16's limit and, in sums of products, from float32's. Pieces hold 2^-38 of it.
inline constexpr int kScaledExponent = 127 + 13;

/// The exponent field of |x|, but such that split_scale() is a normal number.
__device__ __forceinline__ int scale_exponent(float max_magnitude) {
  constexpr int kMin = 32, kMax = 254;
  return min(max(static_cast<int>(__float_as_uint(max_magnitude) >> 23), kMin), kMax);
}
/// 2^(field - 127).
__device__ __forceinline__ float power_of_two(int field) { return __uint_as_float(field << 23); }
/// What scales an element of this exponent field to 2^13.
__device__ __forceinline__ float split_scale(int exponent) {
  return power_of_two(127 + kScaledExponent - exponent);
}

/// The largest of |x| and `other`.
__device__ __forceinline__ float max_magnitude(const float4& x, float other) {
  return fmaxf(fmaxf(other, fmaxf(fabsf(x.x), fabsf(x.y))), fmaxf(fabsf(x.z), fabsf(x.w)));
}

/// Two pairs of pieces, a word each.
struct SplitPair {
  unsigned high, low;
  __device__ SplitPair(float a, float b) {
    const __half2 rounded = __floats2half2_rn(a, b);
    const float2 back = __half22float2(rounded);
    const __half2 rest = __floats2half2_rn(a - back.x, b - back.y);
    high = reinterpret_cast<const unsigned&>(rounded);
    low = reinterpret_cast<const unsigned&>(rest);
  }
};

/// A row of split input, in groups of kSplitElements: their high pieces, then their low ones. In
/// each 16 of them element 4 q + r is at 8 (r / 2) + 2 q + r % 2: lane q of a quad finds the
/// factors of four neighbouring elements of the weight, which it loads at once, where wgmma wants
/// them.
__host__ __device__ constexpr int split_groups(int inner) {
  return (inner + kSplitElements - 1) / kSplitElements;
}

inline constexpr int kSplitThreads = 1024;

/// Splits input [rows, inner], a row per block, inner a multiple of 4. scales: [rows], what
/// SplitProduct multiplies its sums by: the power of two of the row's largest element.
__global__ void __launch_bounds__(kSplitThreads)
    split_input_kernel(const float4* input, int inner, __half* pieces, float* scales) {
  wait_for_previous_kernel();
  __shared__ float warp_max[kSplitThreads / 32];
  const int packs = inner / 4, padded_packs = split_groups(inner) * (kSplitElements / 4);
  const float4* const row = input + int64_t{blockIdx.x} * packs;
  const int thread = static_cast<int>(threadIdx.x);
  float largest = 0;
#pragma unroll 4
  for (int i = thread; i < packs; i += kSplitThreads) {
    largest = max_magnitude(row[i], largest);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
  }
  if (thread % 32 == 0) {
    warp_max[thread / 32] = largest;
  }
  __syncthreads();
#pragma unroll
  for (const float max : warp_max) {
    largest = fmaxf(largest, max);
  }
  const int exponent = scale_exponent(largest);
  const float scale = split_scale(exponent);
  if (thread == 0) {
    scales[blockIdx.x] = power_of_two(exponent);
  }
  auto* const to = reinterpret_cast<unsigned*>(pieces) +
                   int64_t{blockIdx.x} * split_groups(inner) * kSplitElements;
#pragma unroll 4
  for (int i = thread; i < padded_packs; i += kSplitThreads) {
    const float4 x = i < packs ? row[i] : float4{};
    const SplitPair first(x.x * scale, x.y * scale), second(x.z * scale, x.w * scale);
    unsigned* const at = to + i / 16 * kSplitElements + i % 16 / 4 * 8 + i % 4;
    at[0] = first.high;
    at[4] = second.high;
    at[kSplitElements / 2] = first.low;
    at[kSplitElements / 2 + 4] = second.low;
  }
}

}  // namespace warpfuse::cuda
