#pragma once

#include <cstdint>

namespace warpfuse::cuda {

// The few instructions that CUDA C++ has no exact words for.

/// 16 bytes that this kernel reads once and nothing writes meanwhile. Volatile, so that it stays
/// behind wait_for_previous_kernel().
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
  uint4 bits;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}

/// What the L2 cache is to do with the lines of an access: give them up before others, as nothing
/// asks for them again, or after others, as something soon does.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The same under a policy.
__device__ __forceinline__ uint4 load_16_bytes(const void* address, uint64_t policy) {
  uint4 bits;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address), "l"(policy));
  return bits;
}

/// The same into `bits` where `wanted`, else they stay: no branch, so that loads follow each other.
__device__ __forceinline__ void load_16_bytes_if(bool wanted, const void* address, uint4& bits) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w)
      : "l"(address), "r"(static_cast<unsigned>(wanted)));
}

/// One store of 16 bytes: an assignment through a pointer may be split.
__device__ __forceinline__ void store_16_bytes(void* address, const uint4& bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

/// Makes the compiler forget what it derived from these bits, which it would else keep in twice the
/// registers.
__device__ __forceinline__ void block_rematerialization(uint4& bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

/// 16 bytes from global to shared memory, without a register; done at wait_for_copies().
__device__ __forceinline__ void copy_16_bytes(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/// The same under a policy.
__device__ __forceinline__ void copy_16_bytes(unsigned shared, const void* global,
                                              uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(global), "l"(policy)
               : "memory");
}

/// The same where other blocks want the rest of the 128-byte line: it is fetched to the L2 cache.
__device__ __forceinline__ void copy_16_bytes_of_line(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
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

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// A thread's packs in shared memory: planes of 16-byte slots, one for each input, in which the
/// slots of neighbouring threads lie side by side. By address: of a pointer the compiler derives
/// the address anew for each access.
class Staging {
 public:
  __device__ Staging(uint4* memory, int slots)
      : first_(shared_address(memory + threadIdx.x)),
        slot_bytes_(blockDim.x * sizeof(uint4)),
        plane_bytes_(slots * slot_bytes_) {
    asm volatile("" : "+r"(first_), "+r"(slot_bytes_));
  }

  __device__ unsigned at(int slot, int plane) const {
    return first_ + slot * slot_bytes_ + plane * plane_bytes_;
  }
  __device__ uint4 load(int slot, int plane) const {
    uint4 bits;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "r"(at(slot, plane)));
    return bits;
  }
  __device__ void store(int slot, int plane, const uint4& bits) const {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at(slot, plane)), "r"(bits.x),
                 "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
  }

 private:
  unsigned first_, slot_bytes_, plane_bytes_;
};

/// Programmatic dependent launch: this kernel may have been started while the one before it on the
/// stream was finishing, and must touch no memory that may be written before this (pdl.cuh).
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpfuse::cuda
