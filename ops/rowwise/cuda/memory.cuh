#pragma once

#include <cstdint>

namespace warpfuse::cuda {

// The few instructions that CUDA C++ has no exact words for.

/// 16 bytes that this kernel reads once and nothing writes meanwhile. Volatile, so that it stays
/// behind wait_for_previous_kernel().
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
  uint4 bits;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}

/// One store of 16 bytes: an assignment through a pointer may be split.
__device__ __forceinline__ void store_16_bytes(void* address, const uint4& bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

/// Makes the compiler forget what it derived from these bits, which it would else keep in twice the
/// registers.
__device__ __forceinline__ void forget(uint4& bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

/// 16 bytes from global to shared memory, without a register; done at wait_for_copies().
__device__ __forceinline__ void copy_16_bytes(void* shared, const void* global) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

/// Closes the group of copies since the last call.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kPending groups of this thread's copies are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// A thread's packs in shared memory: planes of 16-byte slots, one for each input, in which the
/// slots of neighbouring threads lie side by side.
struct Staging {
  uint4* first;  // slot of this thread
  int threads;
  int slots;

  __device__ uint4* at(int slot, int plane) const {
    return first + (plane * slots + slot) * threads;
  }
};

/// Programmatic dependent launch: this kernel may have been started while the one before it on the
/// stream was finishing, and must not touch memory before this.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpfuse::cuda
