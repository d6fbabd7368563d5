#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <numbers>
#include <type_traits>

namespace warpfuse::cuda {

inline constexpr float kLog2E = std::numbers::log2e_v<float>;

// --- types ------------------------------------------------------------------------------------

/// The type that values of T are computed in: double for double, else float.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Two half precision values, the operand of packed instructions.
template <typename T>
using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

/// combine(a, b) on the pairs that two words hold.
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

/// The larger of two. A NaN is dropped here; it comes back through the sum of exponentials.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <typename C>
__device__ __forceinline__ C negative_infinity() {
  return -static_cast<C>(INFINITY);
}

/// a - b, where `a` may be a product: rounded first, as the maximum was. One multiply-add would
/// leave its rounding error, 2^100 for the lowest scores.
__device__ __forceinline__ float rounded_difference(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double rounded_difference(double a, double b) { return __dsub_rn(a, b); }

// --- exponentials -----------------------------------------------------------------------------

/// The unit of exponentials of scores of type T and of their sums. ex2.approx.ftz flushes results
/// below 2^-126 to zero; in units of 2^-24 they stay normal numbers that a bfloat16 can show.
template <typename T>
constexpr float kExponentialUnit = sizeof(T) == 2 ? 16777216.0f : 1.0f;  // 2^24

/// 2^exponent with an error of about |exponent| * 2^-24, which rounding to half precision hides.
__device__ __forceinline__ float fast_exp2(float exponent) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// e^d in units of kExponentialUnit, as exact as a result of type T can show. Callers subtract the
/// maximum before this multiplies by log2(e): in the other order, log2e * x - log2e * max would be
/// NaN on a row of finfo.min and lose the fraction of large scores.
template <typename T>
__device__ __forceinline__ Compute<T> exponential(Compute<T> d) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(fmaf(d, kLog2E, 24.0f));
  } else {
    return exp(d);
  }
}

/// e^(d - log_sum), in units of one.
template <typename T>
__device__ __forceinline__ Compute<T> probability(Compute<T> d, Compute<T> log_sum) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(fmaf(d, kLog2E, log_sum * -kLog2E));
  } else {
    return exp(d - log_sum);
  }
}

/// e^d for d <= 0, in units of one.
template <typename T>
__device__ __forceinline__ Compute<T> rescale_factor(Compute<T> d) {
  if constexpr (sizeof(T) == 2) {
    return fast_exp2(d * kLog2E);
  } else {
    return exp(d);
  }
}

/// The merge rule of partial sums of exponentials: `sum`, of e^(x - max), relative to `new_max`,
/// which is no less than max. `scale` is the factor of all exponents.
template <typename T>
__device__ __forceinline__ Compute<T> rescale(Compute<T> sum, Compute<T> max, Compute<T> new_max,
                                              Compute<T> scale = 1) {
  return max == new_max ? sum : sum * rescale_factor<T>((max - new_max) * scale);
}

/// 1 / x with an error of 2^-23, which rounding to half precision hides: a division takes a branch
/// and eight instructions.
template <typename T>
__device__ __forceinline__ Compute<T> reciprocal(Compute<T> x) {
  if constexpr (sizeof(T) == 2) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  } else {
    return 1 / x;
  }
}

/// The base of exponentials, in units of kExponentialUnit: operator() is e^(scale * (x - max))
/// times a factor that is the same for all x and whose inverse is rounding_correction().
template <typename T, bool kOneFma>
struct ExpBase {
  Compute<T> max, scale;

  __device__ explicit ExpBase(Compute<T> max, Compute<T> scale = 1) : max(max), scale(scale) {}
  __device__ Compute<T> operator()(Compute<T> x) const { return exponential<T>((x - max) * scale); }
  __device__ Compute<T> rounding_correction() const { return 1; }
};

/// One multiply-add an exponential, for scores that are half precision values: x * slope is exact
/// inside the multiply-add, so only the offset is rounded, by the same amount for every x. From a
/// scaled maximum of 2^16 on neighbouring bfloat16 values lie 256 apart, so that any slope near the
/// scale gives 0 below the maximum. There the slope is a power of two: an offset that is rounded
/// could be off by 2^100. It overflows only where the scaled scores do.
template <typename T>
  requires(sizeof(T) == 2)
struct ExpBase<T, true> {
  float slope, offset, offset_error;

  /// `power_of_two` is no greater than the scale, or 1.
  __device__ explicit ExpBase(float max, float scale = 1, float power_of_two = 1)
      : slope(fabsf(max * scale) < 65536.0f ? kLog2E * scale : power_of_two),
        offset(fmaf(max, slope, -24.0f)),
        offset_error(fmaf(max, slope, -offset) - 24.0f) {}
  __device__ float operator()(float x) const { return fast_exp2(fmaf(x, slope, -offset)); }
  __device__ float rounding_correction() const { return fast_exp2(-offset_error); }
};

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

}  // namespace warpfuse::cuda
