#pragma once

#include <cstdint>
#include <type_traits>

namespace warpfuse::cuda {

// Matrix products of a warpgroup (PTX ISA: "wgmma"), which run beside the threads that start them.
// Only code for 9.0a has them.

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
#pragma unroll
  for (auto& row : values) {
#pragma unroll
    for (T& value : row) {
      if constexpr (std::is_same_v<T, float>) {
        asm volatile("" : "+f"(value)::"memory");
      } else {
        asm volatile("" : "+r"(value)::"memory");
      }
    }
  }
}

/// Before the first product of a group: its registers are as the threads left them.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Returns once all groups have ended.
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

}  // namespace warpfuse::cuda
