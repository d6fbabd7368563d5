#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace warpfuse::cuda {

/// What a dtype is computed in: double for double, else float.
template <typename T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <typename T>
using Compute = typename ComputeOf<T>::type;

/// Two of half precision, which one instruction takes.
template <typename T>
using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

/// A function of two pairs, of pairs in words.
template <typename T, typename Combine>
__device__ __forceinline__ unsigned combine_pairs(unsigned a, unsigned b, const Combine& combine) {
  PairOf<T> x, y;
  memcpy(&x, &a, sizeof(a));
  memcpy(&y, &b, sizeof(b));
  x = combine(x, y);
  memcpy(&a, &x, sizeof(a));
  return a;
}

__device__ __forceinline__ float to_compute(float x) { return x; }
__device__ __forceinline__ double to_compute(double x) { return x; }
__device__ __forceinline__ float to_compute(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_compute(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_compute(Compute<T> x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_compute<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_compute<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// The unit in which exponentials of scores of type T are added up. For half precision they come
/// from an instruction that flushes what is below 2^-126 to zero; in this unit a bfloat16 result
/// below that still comes out.
template <typename T>
constexpr float kExponentialUnit = sizeof(T) == 2 ? 16777216.0f : 1.0f;  // 2^24

__device__ __forceinline__ float fast_exp2(float exponent) {
  float result;  // off by about |exponent| * 2^-24: the rounding to half precision hides it
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// e^d in units of kExponentialUnit, as exact as a result of type T can show. The difference of two
/// scores comes first and is scaled to base 2 then: log2e * x - log2e * m in one instruction would
/// be NaN on a row of finfo.min, and loses the fraction of large scores.
template <typename T>
__device__ __forceinline__ Compute<T> exponential(Compute<T> d) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(fmaf(d, 1.4426950408889634f, 24.0f));
  } else {
    return exp(d);
  }
}

/// e^(d - log_sum), in units of one.
template <typename T>
__device__ __forceinline__ Compute<T> probability(Compute<T> d, Compute<T> log_sum) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(fmaf(d, 1.4426950408889634f, log_sum * -1.4426950408889634f));
  } else {
    return exp(d - log_sum);
  }
}

/// e^d for d <= 0, in units of one: what a sum is multiplied by when the maximum grows.
template <typename T>
__device__ __forceinline__ Compute<T> rescale_factor(Compute<T> d) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(d * 1.4426950408889634f);
  } else {
    return exp(d);
  }
}

/// Exponentials relative to one maximum, in units of kExponentialUnit: operator() is
/// e^(scale * (x - max)) but for a factor that is the same for all x, which rounding_correction()
/// takes away.
template <typename T, bool kAsRead>
struct ExpBase {
  Compute<T> max, scale;

  __device__ explicit ExpBase(Compute<T> max, Compute<T> scale = 1) : max(max), scale(scale) {}
  __device__ Compute<T> operator()(Compute<T> x) const { return exponential<T>((x - max) * scale); }
  __device__ Compute<T> rounding_correction() const { return 1; }
};

/// Scores that are of type T as they were read take one multiply-add: the product is exact in it,
/// so only the subtrahend is rounded, and alike for all. From 2^16 on neighbouring values of
/// bfloat16 lie 256 apart, so that any base of the exponential gives 0 below the maximum; base 2
/// does not overflow.
template <typename T>
  requires(sizeof(T) == 2)
struct ExpBase<T, true> {
  float slope, offset, excess;

  __device__ explicit ExpBase(float max, float scale = 1)
      : slope((fabsf(max) < 65536.0f ? 1.4426950408889634f : 1.0f) * scale),
        offset(fmaf(max, slope, -24.0f)),
        excess(fmaf(max, slope, -offset) - 24.0f) {}
  __device__ float operator()(float x) const { return fast_exp2(fmaf(x, slope, -offset)); }
  __device__ float rounding_correction() const { return fast_exp2(-excess); }
};

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

/// The larger of two; drops a NaN, which comes back through the sum of exponentials.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <typename C>
__device__ __forceinline__ C negative_infinity() {
  return -static_cast<C>(INFINITY);
}

}  // namespace warpfuse::cuda
