#pragma once

#include <cooperative_groups.h>

#include "rowwise/cuda/two_pass.cuh"

namespace warpfuse::cuda {

// Tier stream for few rows in one kernel, whose blocks all run at once.

/// The copies of a part are under way in so many groups: more than for shorter rows, as what is
/// left to add after the last group has come is what all other blocks wait for.
inline constexpr int kCooperativeCopyGroups = 8;

/// Waits for the first group + 1 of kCooperativeCopyGroups groups.
template <int kGroup = 0>
__device__ __forceinline__ void wait_for_cooperative_group(int group) {
  if (group == kGroup) {
    wait_for_copies<kCooperativeCopyGroups - 1 - kGroup>();
  } else if constexpr (kGroup + 1 < kCooperativeCopyGroups) {
    wait_for_cooperative_group<kGroup + 1>(group);
  }
}

/// The packs of a part that are to be read: [from, kept) are in shared memory, pack `line` + rank +
/// slot * threads in a thread's slot, and [kept, to) are read in batches of kStreamLanePacks packs
/// a thread.
struct CooperativePart {
  int line, from, kept, to;

  template <typename Layout>
  __device__ CooperativePart(const Layout& layout, const PackRange& part, int slots_of_block) {
    from = min(max(part.begin, layout.first), part.end);
    to = max(from, min(part.end, layout.last));
    line = part.line + (from - part.line) / kLinePacks * kLinePacks;
    kept = min(to, line + slots_of_block);
  }

  __device__ bool is_kept(int pack) const { return pack >= from && pack < kept; }
};

/// Each block keeps in shared memory what has room there of its part of a row, and in registers the
/// last batch of the rest; only what is left is read twice, the last first, from the L2 cache. In
/// between all blocks wait for each other: a launch that is not cooperative would be an error. The
/// barrier's memory is the driver's, which hands it to one launch at a time, and a barrier leaves
/// it as it was found: kernels on other streams and replays of a graph cannot disturb each other.
template <typename Function>
__global__ void __launch_bounds__(512) cooperative_kernel(Function function, int parts, int slots,
                                                          typename Function::Summary* summaries) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(1);
  const int rank = group.rank(), threads = group.size();
  const int index = static_cast<int>(blockIdx.x) / parts;
  auto row = function.row(index);
  const PackRange all(row.layout, static_cast<int>(blockIdx.x) % parts, parts);
  const CooperativePart part(row.layout, all, slots * threads);
  const Staging staging(memory, slots);
  // A thread adds up as many slots at once as there are packs in a batch.
  const int group_slots = (slots + kCooperativeCopyGroups * kStreamLanePacks - 1) /
                          (kCooperativeCopyGroups * kStreamLanePacks) * kStreamLanePacks;
  for (int copies = 0; copies < kCooperativeCopyGroups; ++copies) {
    for (int slot = copies * group_slots; slot < min(slots, (copies + 1) * group_slots); ++slot) {
      const int pack = part.line + rank + slot * threads;
      if (part.is_kept(pack)) {
        function.stage(row, pack, staging, slot, evict_first());
      }
    }
    commit_copies();
  }

  typename Function::Partial partial{};
  typename Function::RawPack bits[kStreamLanePacks];
  const int batch_packs = kStreamLanePacks * threads;
  const int batches = (part.to - part.kept + batch_packs - 1) / batch_packs;
  const int rounds = max(1, batches);
  const auto fetch = [&](int pack, uint64_t policy) {
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * threads < part.to) {
        function.fetch(row, pack + i * threads, bits[i], policy);
      }
    }
  };
  int copies = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int pack = part.kept + rank + round * batch_packs;
    fetch(pack, round == rounds - 1 ? evict_first() : evict_last());
    // While a batch is on its way, what was copied is added.
#pragma unroll 1
    for (; copies < (round + 1) * kCooperativeCopyGroups / rounds; ++copies) {
      wait_for_cooperative_group(copies);
#pragma unroll 1
      for (int slot = copies * group_slots; slot < min(slots, (copies + 1) * group_slots);
           slot += kStreamLanePacks) {
        const int first = part.line + rank + slot * threads;
        typename Function::RawPack copied[kStreamLanePacks];
#pragma unroll
        for (int i = 0; i < kStreamLanePacks; ++i) {
          if (part.is_kept(first + i * threads)) {
            copied[i] = Function::staged(staging, slot + i);
          }
        }
        add_packs(function, row, partial, copied, first, threads, part.from, part.kept);
      }
    }
    add_packs(function, row, partial, bits, pack, threads, part.kept, part.to);
  }
  typename Function::Edge edge = Function::no_edge();
  if (rank < all.edges) {
    edge = function.edge(row, rank);
    function.add(partial, edge);
  }
  const auto of_block = function.total(row, group, partial);
  if (rank == 0) {
    summaries[blockIdx.x] = of_block;
  }
  cooperative_groups::this_grid().sync();
  const auto result =
      function.finish(row, total_of_parts(function, group, summaries + index * parts, parts));

  typename Function::Fragment kept;
  const auto write = [&](int pack, const typename Function::RawPack& from) {
    typename Function::KeepMask drawn[1];
    function.draw(row, pack, 0, drawn);
    function.keep(row, pack, from, kept, drawn[0]);
    function.prepare(kept, result);
    function.write(row, pack, kept, result, drawn[0]);
  };
#pragma unroll 1
  for (int round = rounds - 1; round >= 0; --round) {
    const int pack = part.kept + rank + round * batch_packs;
    if (round < rounds - 1) {
      fetch(pack, evict_first());
    }
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * threads < part.to) {
        write(pack + i * threads, bits[i]);
      }
    }
  }
#pragma unroll 2
  for (int slot = 0; slot < slots; ++slot) {
    const int pack = part.line + rank + slot * threads;
    if (part.is_kept(pack)) {
      write(pack, Function::staged(staging, slot));
    }
  }
  if constexpr (Function::kRules) {  // zeros for what was not read
    for (int pack = all.begin + rank; pack < part.from; pack += threads) {
      function.write(row, pack, kept, result, {});
    }
    for (int pack = part.to + rank; pack < all.end; pack += threads) {
      function.write(row, pack, kept, result, {});
    }
  }
  if (rank < all.edges) {
    function.prepare(edge, result);
    function.write_edge(row, rank, edge, result);
  }
}

}  // namespace warpfuse::cuda
