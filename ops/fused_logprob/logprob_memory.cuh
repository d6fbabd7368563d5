#pragma once

#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// Accesses that only these kernels make. All are volatile, so that they stay behind
// wait_for_previous_kernel().

/// 4 or 8 bytes that nothing writes meanwhile. The L2 may keep them: the backward reads them again.
__device__ __forceinline__ unsigned load_word(const unsigned* address) {
  unsigned bits;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(bits) : "l"(address));
  return bits;
}
__device__ __forceinline__ unsigned long long load_word(const unsigned long long* address) {
  unsigned long long bits;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(bits) : "l"(address));
  return bits;
}

/// 16 bytes that only this thread may write, afterwards.
__device__ __forceinline__ uint4 load_own_16_bytes(const void* address) {
  uint4 bits;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}

/// Stores 16 bytes that nothing reads soon: what else is in the cache may stay.
__device__ __forceinline__ void stream_16_bytes(void* address, const uint4& bits) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x),
               "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

}  // namespace warpfuse::cuda
