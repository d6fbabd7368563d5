#pragma once

#include <cuda.h>

#include <cstdint>

#include "hopper/mbarrier.cuh"

namespace warpfuse::cuda {

// Copies by the TMA unit (PTX ISA: "cp.async.bulk", "cp.async.bulk.tensor"). One thread issues a
// copy, of one box of a CUtensorMap where it is of a tensor; the map lies in a __grid_constant__
// parameter. The bytes arrive at an mbarrier. `policy` is an L2 cache policy (memory.cuh).

/// True in one lane of a converged warp. Code behind it stays uniform, unlike behind lane == 0,
/// where ptxas makes a loop over lanes of each copy.
__device__ __forceinline__ bool is_elected() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

/// Copies `bytes` bytes, a multiple of 16, between addresses that are too. They arrive at
/// `barrier`.
__device__ __forceinline__ void bulk_load(unsigned shared, const void* global, int bytes,
                                          const Mbarrier& barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier.address()), "l"(policy)
      : "memory");
}

/// Copies `bytes` bytes, a multiple of 16, between addresses that are too. The threads that wrote
/// them have called fence_async_proxy() before a barrier.
__device__ __forceinline__ void bulk_store(void* global, unsigned shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until this thread's bulk stores have read shared memory.
__device__ __forceinline__ void wait_for_bulk_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// Copies the box whose first element is (x, y), x along the innermost dimension, to `shared`.
__device__ __forceinline__ void tma_load_2d(unsigned shared, const CUtensorMap& map, int x, int y,
                                            const Mbarrier& barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
      "l"(&map), "r"(x), "r"(y), "r"(barrier.address()), "l"(policy)
      : "memory");
}

/// Copies the box to the same place in each block of the cluster that has a bit in `blocks`. The
/// bytes arrive at the same barrier of each.
__device__ __forceinline__ void tma_load_2d_multicast(unsigned shared, const CUtensorMap& map,
                                                      int x, int y, const Mbarrier& barrier,
                                                      uint16_t blocks, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared),
      "l"(&map), "r"(x), "r"(y), "r"(barrier.address()), "h"(blocks), "l"(policy)
      : "memory");
}

/// As tma_load_2d(), of a box of four dimensions, by a map that may lie in global memory.
__device__ __forceinline__ void tma_load_4d(unsigned shared, const CUtensorMap* map,
                                            const int (&at)[4], const Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier.address())
      : "memory");
}

/// Copies shared memory to the box whose first element is at `at`; elements outside the tensor are
/// left out. As bulk_store().
__device__ __forceinline__ void tma_store_4d(const CUtensorMap& map, const int (&at)[4],
                                             unsigned shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          &map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

}  // namespace warpfuse::cuda
