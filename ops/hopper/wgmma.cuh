#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/unrolled.cuh"
#include "hopper/tensor_map.h"
#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// Matrix products of a warpgroup (PTX ISA: "wgmma"), which run beside the threads that start them.
// Only code for 9.0a has them.

/// The first shared address in a block's dynamic memory at which operands may lie.
__device__ __forceinline__ unsigned operand_memory(const void* memory) {
  return (shared_address(memory) + kOperandAlignment - 1) / kOperandAlignment * kOperandAlignment;
}

/// An operand by its shared address (PTX ISA: "matrix descriptor format"): rows of 128 bytes,
/// 16-byte chunk c at c ^ row % 8. Addresses of descriptors count in kOperandUnit bytes.
inline constexpr int kOperandUnit = 16;
__device__ __forceinline__ uint64_t wgmma_operand(unsigned shared) {
  constexpr uint64_t kSwizzle128 = 1, kEightRows = 1024;
  return kSwizzle128 << 62 | kEightRows / kOperandUnit << 32 | uint64_t{1} << 16 |
         (shared & 0x3ffff) / kOperandUnit;
}

/// Keeps what is computed of registers before an instruction before it, and what after behind it.
template <typename T, int kRows, int kCount>
__device__ __forceinline__ void pin(T (&values)[kRows][kCount]) {
  unrolled<kRows * kCount>([&](int i) {
    T& value = values[i / kCount][i % kCount];
    if constexpr (std::is_same_v<T, float>) {
      asm volatile("" : "+f"(value)::"memory");
    } else {
      asm volatile("" : "+r"(value)::"memory");
    }
  });
}

/// Before the first product of a group: its registers are as the threads left them.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Returns once all groups but the last kPending have ended.
template <int kPending = 0>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// clang-format off
#define WARPFUSE_WGMMA_64X64X16(TYPE, CONSTRAINT, OPERANDS, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, " OPERANDS ";" \
               : CONSTRAINT(d[0][0]), CONSTRAINT(d[0][1]), CONSTRAINT(d[0][2]), CONSTRAINT(d[0][3]), \
                 CONSTRAINT(d[1][0]), CONSTRAINT(d[1][1]), CONSTRAINT(d[1][2]), CONSTRAINT(d[1][3]), \
                 CONSTRAINT(d[2][0]), CONSTRAINT(d[2][1]), CONSTRAINT(d[2][2]), CONSTRAINT(d[2][3]), \
                 CONSTRAINT(d[3][0]), CONSTRAINT(d[3][1]), CONSTRAINT(d[3][2]), CONSTRAINT(d[3][3]), \
                 CONSTRAINT(d[4][0]), CONSTRAINT(d[4][1]), CONSTRAINT(d[4][2]), CONSTRAINT(d[4][3]), \
                 CONSTRAINT(d[5][0]), CONSTRAINT(d[5][1]), CONSTRAINT(d[5][2]), CONSTRAINT(d[5][3]), \
                 CONSTRAINT(d[6][0]), CONSTRAINT(d[6][1]), CONSTRAINT(d[6][2]), CONSTRAINT(d[6][3]), \
                 CONSTRAINT(d[7][0]), CONSTRAINT(d[7][1]), CONSTRAINT(d[7][2]), CONSTRAINT(d[7][3]) \
               : __VA_ARGS__)
// clang-format on

/// d = a b^T, or d += a b^T, of a warpgroup in half precision: 64 rows, of which each warp has 16,
/// by 64 columns. d[j] are elements 8 j + 2 c and the next one of rows g and g + 8 of the warp's,
/// where g is the lane's quad and c its rank there.
template <typename T, bool kAdds>
__device__ __forceinline__ void wgmma_64x64(float (*d)[4], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    if constexpr (kAdds) {
      WARPFUSE_WGMMA_64X64X16("f16", "+f", "%32, %33, 1, 1, 1, 0, 0", "l"(a), "l"(b));
    } else {
      WARPFUSE_WGMMA_64X64X16("f16", "=f", "%32, %33, 0, 1, 1, 0, 0", "l"(a), "l"(b));
    }
  } else {
    if constexpr (kAdds) {
      WARPFUSE_WGMMA_64X64X16("bf16", "+f", "%32, %33, 1, 1, 1, 0, 0", "l"(a), "l"(b));
    } else {
      WARPFUSE_WGMMA_64X64X16("bf16", "=f", "%32, %33, 0, 1, 1, 0, 0", "l"(a), "l"(b));
    }
  }
}

/// d += a b likewise, with a in registers; the sum goes along the rows of b.
template <typename T>
__device__ __forceinline__ void wgmma_64x64_registers(float (*d)[4], const unsigned (&a)[4],
                                                      uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    WARPFUSE_WGMMA_64X64X16("f16", "+f", "{%32, %33, %34, %35}, %36, 1, 1, 1, 1", "r"(a[0]),
                            "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    WARPFUSE_WGMMA_64X64X16("bf16", "+f", "{%32, %33, %34, %35}, %36, 1, 1, 1, 1", "r"(a[0]),
                            "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}
#endif

}  // namespace warpfuse::cuda
