#pragma once

#include <cstdint>

namespace warpfuse::cuda {

// Memory instructions that CUDA C++ has no exact expression for.

// --- global memory ----------------------------------------------------------------------------

/// Loads 16 bytes that no kernel writes meanwhile. Volatile, so that the load stays behind
/// wait_for_previous_kernel().
__device__ __forceinline__ uint4 load_16_bytes(const void* address) {
  uint4 bits;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}

/// L2 cache policies: evict_first() for lines that are not read again, evict_last() for lines that
/// are read again soon.
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

__device__ __forceinline__ uint4 load_16_bytes(const void* address, uint64_t policy) {
  uint4 bits;
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address), "l"(policy));
  return bits;
}

/// Brings the line of an address to the L2 cache.
__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// Loads where `wanted`, else leaves `bits`. A predicate in place of a branch keeps consecutive
/// loads in flight together.
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

/// The same with eight bytes.
__device__ __forceinline__ void load_8_bytes_if(bool wanted, const void* address, uint2& bits) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %3, 0;\n"
      "@wanted ld.global.v2.u32 {%0, %1}, [%2];\n"
      "}"
      : "+r"(bits.x), "+r"(bits.y)
      : "l"(address), "r"(static_cast<unsigned>(wanted)));
}

/// The same with a unit of four or two bytes.
__device__ __forceinline__ void load_unit_if(bool wanted, const void* address, unsigned& unit) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted ld.global.u32 %0, [%1];\n"
      "}"
      : "+r"(unit)
      : "l"(address), "r"(static_cast<unsigned>(wanted)));
}
__device__ __forceinline__ void load_unit_if(bool wanted, const void* address,
                                             unsigned short& unit) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted ld.global.u16 %0, [%1];\n"
      "}"
      : "+h"(unit)
      : "l"(address), "r"(static_cast<unsigned>(wanted)));
}

/// Stores a unit where `wanted`.
__device__ __forceinline__ void store_unit_if(bool wanted, void* address, unsigned unit) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted st.global.u32 [%0], %1;\n"
      "}" ::"l"(address),
      "r"(unit), "r"(static_cast<unsigned>(wanted))
      : "memory");
}
__device__ __forceinline__ void store_unit_if(bool wanted, void* address, unsigned short unit) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %2, 0;\n"
      "@wanted st.global.u16 [%0], %1;\n"
      "}" ::"l"(address),
      "h"(unit), "r"(static_cast<unsigned>(wanted))
      : "memory");
}

/// One 16-byte store. The compiler may split an assignment through a pointer.
__device__ __forceinline__ void store_16_bytes(void* address, const uint4& bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

/// An empty asm that may have changed `bits`: the compiler computes unpacked values again after it
/// and does not hold them in twice the registers meanwhile.
__device__ __forceinline__ void block_rematerialization(uint4& bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
}

// --- shared memory, and asynchronous copies to it ---------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint4 load_shared_16_bytes(unsigned shared) {
  uint4 bits;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(shared));
  return bits;
}

__device__ __forceinline__ void store_shared_16_bytes(unsigned shared, const uint4& bits) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

__device__ __forceinline__ void store_shared_word(unsigned shared, unsigned word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
}

__device__ __forceinline__ void copy_4_bytes(unsigned shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_16_bytes(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_16_bytes(unsigned shared, const void* global,
                                              uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(global), "l"(policy)
               : "memory");
}
/// Also fetches the rest of the 128-byte line to the L2 cache, for other blocks.
__device__ __forceinline__ void copy_16_bytes_and_line(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}

/// Zeros where it is not wanted: nothing is read then.
__device__ __forceinline__ void copy_16_bytes_or_zeros(unsigned shared, const void* global,
                                                       bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(wanted ? 16 : 0)
               : "memory");
}

/// Closes the group of this thread's copies since the last call.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kPending groups of this thread's copies are in flight.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Waits for group `group` of kGroups groups in flight and for those before it.
template <int kGroups, int kGroup = 0>
__device__ __forceinline__ void wait_for_copy_group(int group) {
  if (group == kGroup) {
    wait_for_copies<kGroups - 1 - kGroup>();
  } else if constexpr (kGroup + 1 < kGroups) {
    wait_for_copy_group<kGroups, kGroup + 1>(group);
  }
}

/// A thread's packs in dynamic shared memory, uint4[inputs][slots][threads]: neighbouring threads
/// have neighbouring slots. It computes 32-bit addresses itself; from a pointer the compiler would
/// derive each address anew.
class Staging {
 public:
  __device__ Staging(uint4* memory, int slots)
      : first_(shared_address(memory + threadIdx.x)),
        slot_bytes_(blockDim.x * sizeof(uint4)),
        input_bytes_(slots * slot_bytes_) {
    asm volatile("" : "+r"(first_), "+r"(slot_bytes_));
  }

  __device__ unsigned at(int slot, int input) const {
    return first_ + slot * slot_bytes_ + input * input_bytes_;
  }
  __device__ uint4 load(int slot, int input) const { return load_shared_16_bytes(at(slot, input)); }
  __device__ void store(int slot, int input, const uint4& bits) const {
    store_shared_16_bytes(at(slot, input), bits);
  }

 private:
  unsigned first_, slot_bytes_, input_bytes_;
};

// --- programmatic dependent launch (pdl.cuh) --------------------------------------------------

/// A kernel may start while the one before it on the stream still runs. It must not touch memory
/// that the earlier kernel may write before this call.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpfuse::cuda
