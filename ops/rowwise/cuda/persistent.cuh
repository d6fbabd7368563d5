#pragma once

#include "rowwise/cuda/in_registers.cuh"

namespace warpfuse::cuda {

/// Tiers block and cluster for persistent blocks: while a row is in registers, each thread copies
/// its packs of the next row to shared memory.
template <int kLanePacks, RowFunction F>
__global__ void __launch_bounds__(kLanePacks * sizeof(typename F::Fragment) <= 128 ? 1024 : 512)
    persistent_kernel(F function, int64_t steps, int blocks) {
  extern __shared__ __align__(128) uint4 memory[];
  BlockGroup group(blocks);
  if constexpr (!kRowReads<F>) {
    prefetch_row(function, function.row(group.index(), NoWait()), group);
  }
  wait_for_previous_kernel();
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, kLanePacks);
  // 8 packs a lane of half precision: one block fills the multiprocessor and is compute-bound, so
  // the copies of the next row start with the stores (5 % faster).
  constexpr bool kLateCopies = kLanePacks * sizeof(typename F::Fragment) > 128 &&
                               sizeof(typename F::Fragment) > sizeof(RawPack<F::kInputs>);
  const int64_t stride = group.groups();
  typename F::Edge next_edge;
  static_assert(
      !kHasMaskTensor<F>);  // the edge would be noted as visible in another copy of the row
  const auto start = [&](int64_t step) {
    auto row = function.row(step, NoWait());
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.packed.read(rank + i * size)) {
        load_async(function, row, rank + i * size, staging, i);
      }
    }
    commit_copies();
    next_edge = load_edge(function, row, rank);
  };
  int64_t step = group.index();
  start(step);
  for (; step < steps; step += stride) {
    auto row = function.row(step, NoWait());
    RawPack<F::kInputs> raws[kLanePacks];
    typename F::Fragment fragments[kLanePacks];
    auto edge = next_edge;
    const LaneKeepMasks<kLanePacks, F> masks(function, row, rank, size);
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      load_staged(staging, i, raws[i]);  // empty slots too: all loads are in flight at once
    }
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.packed.read(rank + i * size)) {
        prepare_fragment(function, row, rank + i * size, raws[i], masks[i], fragments[i]);
      }
    }
    const auto start_next = [&] {
      if (step + stride < steps) {
        start(step + stride);
      }
    };
    if constexpr (kLateCopies) {
      reduce_and_write(function, row, group, fragments, masks, edge, start_next);
    } else {
      start_next();
      reduce_and_write(function, row, group, fragments, masks, edge, [] {});
    }
  }
}

}  // namespace warpfuse::cuda
