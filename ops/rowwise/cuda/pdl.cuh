#pragma once

#include <cstdint>

#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// What a block does before wait_for_previous_kernel(), while the kernel before its own still runs:
// it works out where its first row lies, and has it brought to the L2 cache. That is where whatever
// that kernel still writes ends up too, so that nothing stale is read later.

/// Starts to bring what lies there of whole 16 bytes, as it must, to the L2 cache.
__device__ __forceinline__ void prefetch_bytes(const void* address, int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  constexpr uintptr_t kUnit = 16;
  const auto at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t begin = (at + kUnit - 1) / kUnit * kUnit;
  const uintptr_t end = (at + static_cast<uintptr_t>(bytes)) / kUnit * kUnit;
  if (begin < end) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                     __cvta_generic_to_global(reinterpret_cast<const void*>(begin))),
                 "r"(static_cast<unsigned>(end - begin))
                 : "memory");
  }
#endif
}

/// Whether this thread does so for its block. About so many blocks run at once, and for later ones
/// nothing is left to wait for: to prefetch then takes longer than not to.
__device__ __forceinline__ bool should_prefetch() {
  constexpr unsigned kThreads = 1024;  // of a multiprocessor, with 64 registers each
  unsigned multiprocessors;
  asm("mov.u32 %0, %%nsmid;" : "=r"(multiprocessors));
  return threadIdx.x == 0 && blockIdx.x < multiprocessors * (kThreads / blockDim.x);
}

/// A row of a group, each of its blocks a part of it.
template <typename Function, typename Group>
__device__ __forceinline__ void prefetch_row(const Function& function,
                                             const typename Function::Row& row,
                                             const Group& group) {
  if (should_prefetch()) {
    const int first = row.layout.first, packs = row.layout.last - first;
    const int begin = first + packs / group.blocks() * group.block();
    const int end =
        group.block() + 1 == group.blocks() ? row.layout.last : begin + packs / group.blocks();
    function.prefetch(row, begin, int64_t{end - begin} * kPack<typename Function::T>);
  }
}

/// Waits, at one place on all ways: the compiler moves loads that it takes for those of constants
/// before a wait in a branch. Returns the row of a step. Where rows read no memory to be made,
/// prefetch(row) is called before.
template <typename Function, typename Prefetch>
__device__ __forceinline__ typename Function::Row first_row(const Function& function, int64_t step,
                                                            const Prefetch& prefetch) {
  if constexpr (Function::kRowReads) {
    return function.row(step, [] { wait_for_previous_kernel(); });
  } else {
    const auto row = function.row(step);
    prefetch(row);
    wait_for_previous_kernel();
    return row;
  }
}

/// `rows` rows of a block, the first alone where they do not lie one after the other.
template <typename Function>
__device__ __forceinline__ void prefetch_rows(const Function& function,
                                              const typename Function::Row& first, int64_t rows) {
  if (should_prefetch() && rows > 0) {
    const int64_t further = function.stride() == function.columns ? rows - 1 : 0;
    function.prefetch(
        first, 0,
        further * function.columns + int64_t{first.layout.packs} * kPack<typename Function::T>);
  }
}

}  // namespace warpfuse::cuda
