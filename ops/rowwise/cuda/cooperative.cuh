#pragma once

#include <cooperative_groups.h>

#include "rowwise/cuda/two_pass.cuh"

namespace warpfuse::cuda {

// Tier stream for few rows in one cooperative kernel: all blocks run at once and hold the rows in
// their shared memory, as far as there is room.

/// cp.async groups of a range. More than kCopyGroups: the reduction left after the last group has
/// arrived delays the grid barrier.
inline constexpr int kCooperativeCopyGroups = 8;

/// Each block holds its range of a row: in shared memory what has room there, pack
/// line + rank + slot * threads in slot `slot` of a thread, and in registers the last batch of the
/// rest, which is read in batches of kStreamLanePacks packs per thread. Only the other batches are
/// read twice, the last one first, from the L2 cache. All blocks meet at one grid barrier, so the
/// launch must be cooperative. The driver owns the barrier's memory and gives it to one launch at a
/// time, and a barrier leaves it as it was: kernels on other streams and replays of a CUDA graph
/// cannot interfere.
template <RowFunction F>
__global__ void __launch_bounds__(512)
    cooperative_kernel(F function, int parts, int slots, typename F::Partial* partials) {
  using Raw = RawPack<F::kInputs>;
  extern __shared__ __align__(128) uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(1);
  const int rank = group.rank(), threads = group.size();
  const int index = static_cast<int>(blockIdx.x) / parts;
  auto row = function.row(index, NoWait());
  const PackRange range(row.packed, static_cast<int>(blockIdx.x) % parts, parts);
  const int shared_end = min(range.end, range.line + slots * threads);
  const auto in_shared = [&](int pack) { return pack >= range.begin && pack < shared_end; };
  const Staging staging(memory, slots);
  // A multiple of a batch: a thread adds as many slots at once as a batch has packs.
  const int group_slots = (slots + kCooperativeCopyGroups * kStreamLanePacks - 1) /
                          (kCooperativeCopyGroups * kStreamLanePacks) * kStreamLanePacks;
  for (int copies = 0; copies < kCooperativeCopyGroups; ++copies) {
    for (int slot = copies * group_slots; slot < min(slots, (copies + 1) * group_slots); ++slot) {
      const int pack = range.line + rank + slot * threads;
      if (in_shared(pack)) {
        load_async(function, row, pack, staging, slot, evict_first());
      }
    }
    commit_copies();
  }

  typename F::Accumulator accumulator{};
  Raw raws[kStreamLanePacks];
  const int batch_packs = kStreamLanePacks * threads;
  const int batches = (range.end - shared_end + batch_packs - 1) / batch_packs;
  const int rounds = max(1, batches);
  const auto load_batch = [&](int pack, uint64_t policy) {
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * threads < range.end) {
        load(function, row, pack + i * threads, raws[i], policy);
      }
    }
  };
  int copies = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int pack = shared_end + rank + round * batch_packs;
    load_batch(pack, round == rounds - 1 ? evict_first() : evict_last());
    // While the batch is in flight, copies that have arrived are added.
#pragma unroll 1
    for (; copies < (round + 1) * kCooperativeCopyGroups / rounds; ++copies) {
      wait_for_copy_group<kCooperativeCopyGroups>(copies);
#pragma unroll 1
      for (int slot = copies * group_slots; slot < min(slots, (copies + 1) * group_slots);
           slot += kStreamLanePacks) {
        const int first = range.line + rank + slot * threads;
        Raw staged[kStreamLanePacks];
#pragma unroll
        for (int i = 0; i < kStreamLanePacks; ++i) {
          if (in_shared(first + i * threads)) {
            load_staged(staging, slot + i, staged[i]);
          }
        }
        add_packs(function, row, accumulator, staged, first, threads, range.begin, shared_end);
      }
    }
    add_packs(function, row, accumulator, raws, pack, threads, shared_end, range.end);
  }
  const bool has_edge = rank < range.edges;
  typename F::Edge edge = load_edge(function, row, has_edge ? rank : row.packed.edges);
  if (has_edge) {
    function.add(accumulator, edge);
  }
  const auto block_partial = function.total(row, group, accumulator);
  if (rank == 0) {
    partials[blockIdx.x] = block_partial;
  }
  cooperative_groups::this_grid().sync();
  const auto result =
      function.finish(row, merge_parts(function, group, partials + index * parts, parts));

  const auto write = [&](int pack, const Raw& raw) {
    typename F::KeepMask masks[1];
    typename F::Fragment fragment;
    function.draw(row, pack, 0, masks);
    prepare_fragment(function, row, pack, raw, masks[0], fragment);
    function.write(row, pack, fragment, result, masks[0], kAsRead);
  };
#pragma unroll 1
  for (int round = rounds - 1; round >= 0; --round) {
    const int pack = shared_end + rank + round * batch_packs;
    if (round < rounds - 1) {
      load_batch(pack, evict_first());
    }
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * threads < range.end) {
        write(pack + i * threads, raws[i]);
      }
    }
  }
#pragma unroll 2
  for (int slot = 0; slot < slots; ++slot) {
    const int pack = range.line + rank + slot * threads;
    if (in_shared(pack)) {
      Raw raw;
      load_staged(staging, slot, raw);
      write(pack, raw);
    }
  }
  if (has_edge) {
    write_edge(function, row, rank, edge, result, kAsRead);
  }
}

}  // namespace warpfuse::cuda
