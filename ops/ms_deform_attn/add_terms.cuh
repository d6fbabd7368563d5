#pragma once

#include "ms_deform_attn/deform_rows.cuh"

namespace warpfuse::cuda {

// Terms of the value's gradient, added in memory: by predicates in place of branches, and by
// instructions for global memory, which the compiler cannot tell from pixel_address().

__device__ __forceinline__ void add_if(bool wanted, float* to, float term) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted red.global.add.f32 [%0], %1;\n"
      "}" ::"l"(to),
      "f"(term), "r"(static_cast<unsigned>(wanted))
      : "memory");
}
__device__ __forceinline__ void add_if(bool wanted, double* to, double term) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted red.global.add.f64 [%0], %1;\n"
      "}" ::"l"(to),
      "d"(term), "r"(static_cast<unsigned>(wanted))
      : "memory");
}

/// to[i] += terms[i] where `wanted`, by one instruction for 16 bytes where the GPU has it.
template <typename C, int kVector>
__device__ __forceinline__ void add_if(bool wanted, C* to, const C (&terms)[kVector]) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kAtOnce = std::is_same_v<C, float> && kVector == 4;
#else
  constexpr bool kAtOnce = false;
#endif
  if constexpr (kAtOnce) {
    asm volatile(
        "{\n"
        ".reg .pred wanted;\n"
        "setp.ne.u32 wanted, %5, 0;\n"
        "@wanted red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n"
        "}" ::"l"(to),
        "f"(terms[0]), "f"(terms[1]), "f"(terms[2]), "f"(terms[3]),
        "r"(static_cast<unsigned>(wanted))
        : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      add_if(wanted, to + i, terms[i]);
    }
  }
}

/// Sums of integers, infinities and NaN do not depend on the order of their terms.
template <typename C>
__device__ __forceinline__ void add_in_any_order(int64_t* fixed, C* floating, double scale,
                                                 C term) {
  const bool finite = isfinite(term);
  if (finite) {
    atomicAdd(reinterpret_cast<unsigned long long*>(fixed),
              static_cast<unsigned long long>(__double2ll_rn(static_cast<double>(term) * scale)));
  }
  add_if(!finite, floating, term);
}

/// A point's four pixels of the value, -1 outside, and the corners' weights times the point's.
template <typename C>
struct WeightedCorners {
  int pixel[4];
  C weight[4];
};

/// The gradient of a batch and head of the value, from the first of a thread's channels on.
template <typename C, int kVector>
class ValueGradient {
 public:
  __device__ ValueGradient(const MsDeformAttnBackwardArguments& arguments, int64_t offset)
      : arguments_(arguments),
        offset_(offset),
        data_(static_cast<C*>(arguments.grad_value) + offset),
        pixel_bytes_(arguments.inputs.sizes.pixel_elements() * static_cast<int>(sizeof(C))) {
    stay_in_registers(data_, pixel_bytes_);
  }

  /// Adds weight * grad at the pixels that are at least `least`.
  __device__ __forceinline__ void add(const WeightedCorners<C>& corners, int least,
                                      const C (&grad)[kVector]) const {
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      const int pixel = corners.pixel[corner];
      C terms[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        terms[i] = corners.weight[corner] * grad[i];
      }
      if (kVector > 1 || arguments_.fixed_grad_value == nullptr) {
        add_if(pixel >= least, pixel_address(data_, pixel, pixel_bytes_), terms);
      } else if (pixel >= least) {
        const int64_t element = int64_t{pixel} * arguments_.inputs.sizes.pixel_elements();
        add_in_any_order(arguments_.fixed_grad_value + offset_ + element, data_ + element,
                         *arguments_.fixed_scale, terms[0]);
      }
    }
  }

 private:
  const MsDeformAttnBackwardArguments& arguments_;
  int64_t offset_;
  C* data_;
  int pixel_bytes_;
};

}  // namespace warpfuse::cuda
