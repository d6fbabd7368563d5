#pragma once

#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// Copies between global and shared memory by a warp, in packs where the addresses allow it.

/// Copies `elements` elements to shared memory, with the offset from a 16-byte boundary that they
/// have in global memory; done at wait_for_copies(). Returns the first one's place.
template <typename T>
__device__ __forceinline__ T* copy_in(const T* from, uint4* shared, int elements, int lane) {
  const int shift = pack_shift(from);
  T* const to = reinterpret_cast<T*>(shared) + shift;
  const int head = min(elements, (kPack<T> - shift) % kPack<T>);
  const int packs = (elements - head) / kPack<T>, tail = head + packs * kPack<T>;
  for (int i = lane; i < packs; i += 32) {
    copy_16_bytes(shared_address(to + head + i * kPack<T>), from + head + i * kPack<T>);
  }
  if (lane < head) {
    to[lane] = from[lane];
  }
  if (tail + lane < elements) {
    to[tail + lane] = from[tail + lane];
  }
  return to;
}

/// Copies elements from where copy_in() would have put them, in packs if those are aligned in both
/// places.
template <typename T>
__device__ __forceinline__ void copy_out(const T* from, T* to, int elements, int lane) {
  const int shift = pack_shift(to);
  if (shared_address(from) / sizeof(T) % kPack<T> != static_cast<unsigned>(shift)) {
    for (int i = lane; i < elements; i += 32) {
      to[i] = from[i];
    }
    return;
  }
  const int head = min(elements, (kPack<T> - shift) % kPack<T>);
  const int packs = (elements - head) / kPack<T>, tail = head + packs * kPack<T>;
  for (int i = lane; i < packs; i += 32) {
    store_16_bytes(to + head + i * kPack<T>,
                   *reinterpret_cast<const uint4*>(from + head + i * kPack<T>));
  }
  if (lane < head) {
    to[lane] = from[lane];
  }
  if (tail + lane < elements) {
    to[tail + lane] = from[tail + lane];
  }
}

/// Loads an element of shared memory, also where the compiler sees no need to.
template <typename T>
__device__ __forceinline__ T load_shared(const T* from) {
  if constexpr (sizeof(T) == 2) {
    unsigned short bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(shared_address(from)));
    return reinterpret_cast<const T&>(bits);
  } else {
    unsigned bits;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(shared_address(from)));
    return reinterpret_cast<const T&>(bits);
  }
}

}  // namespace warpfuse::cuda
