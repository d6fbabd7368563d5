#pragma once

#include <cstdint>

#include "rowwise/cuda/row_packs.cuh"

namespace warpfuse::cuda {

// The prologue under programmatic dependent launch: while the previous kernel still runs, a block
// computes the address of its first row and prefetches the row into the L2 cache. Later writes of
// the previous kernel reach the same L2 cache, so nothing stale is read.

/// Prefetches the range into L2, shrunk to whole 16-byte units as cp.async.bulk requires.
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

/// True in thread 0 of blocks of the first wave (estimate: 1024 threads of 64 registers a
/// multiprocessor). Blocks of later waves start after the previous kernel has ended and would only
/// pay for the prefetch.
__device__ __forceinline__ bool should_prefetch() {
  constexpr unsigned kThreads = 1024;
  unsigned multiprocessors;
  asm("mov.u32 %0, %%nsmid;" : "=r"(multiprocessors));
  return threadIdx.x == 0 && blockIdx.x < multiprocessors * (kThreads / blockDim.x);
}

/// Prefetches `elements` elements of each input from a pack on.
template <RowFunction F>
__device__ __forceinline__ void prefetch(const F& function, const typename F::Row& row, int pack,
                                         int64_t elements) {
  using T = typename F::T;
  for_inputs<F::kInputs>([&](auto i) {
    if (i == 0 || function.inputs_aligned) {
      prefetch_bytes(row.packs[i] + static_cast<int64_t>(pack) * kPack<T>,
                     elements * static_cast<int64_t>(sizeof(T)));
    }
  });
}

/// Prefetches this block's part of a row that the blocks of a group share.
template <RowFunction F, typename Group>
__device__ __forceinline__ void prefetch_row(const F& function, const typename F::Row& row,
                                             const Group& group) {
  if (should_prefetch()) {
    const int first = row.packed.first, packs = row.packed.last - first;
    const int begin = first + packs / group.blocks() * group.block();
    const int end =
        group.block() + 1 == group.blocks() ? row.packed.last : begin + packs / group.blocks();
    prefetch(function, row, begin, int64_t{end - begin} * kPack<typename F::T>);
  }
}

/// Prefetches the `rows` consecutive rows of a block.
template <RowFunction F>
__device__ __forceinline__ void prefetch_rows(const F& function, const typename F::Row& first,
                                              int64_t rows) {
  if (should_prefetch() && rows > 0) {
    prefetch(function, first, 0,
             (rows - 1) * function.columns + int64_t{first.packed.packs} * kPack<typename F::T>);
  }
}

/// Returns the row for `step` after griddepcontrol.wait. The wait must dominate all loads: ptxas
/// hoists ld.global.nc above a wait that sits in a branch. If building the row reads no memory,
/// prefetch(row) runs before the wait.
template <RowFunction F, typename Prefetch>
__device__ __forceinline__ typename F::Row first_row(const F& function, int64_t step,
                                                     const Prefetch& prefetch) {
  if constexpr (kRowReads<F>) {
    return function.row(step, [] { wait_for_previous_kernel(); });
  } else {
    const auto row = function.row(step, NoWait());
    prefetch(row);
    wait_for_previous_kernel();
    return row;
  }
}

}  // namespace warpfuse::cuda
