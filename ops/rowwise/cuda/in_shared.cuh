#pragma once

#include "rowwise/cuda/row_packs.cuh"

namespace warpfuse::cuda {

// Tiers block and cluster for rows that live in shared memory.

/// cp.async groups of a row: the first one is reduced while the others are in flight.
inline constexpr int kCopyGroups = 4;

template <int kCount>
using Count = std::integral_constant<int, kCount>;

/// Calls visit(count, slot) for the slots [from, to): count is kBatch where whole(slot) says that
/// the kBatch slots all hold packs, else 1 for a slot that may be empty.
template <int kBatch, typename Whole, typename Visit>
__device__ __forceinline__ void for_slots(int from, int to, const Whole& whole,
                                          const Visit& visit) {
  int slot = from;
  while (slot < to) {
    if (slot + kBatch <= to && whole(slot)) {
      visit(Count<kBatch>(), slot);
      slot += kBatch;
    } else {
      visit(Count<1>(), slot);
      ++slot;
    }
  }
}

/// Visits the fragment of a staged pack and leaves in its slot what the next visit starts from: the
/// fragment where it fits, else the raw pack, prepared once.
template <bool kFirstTime, RowFunction F, typename Visit>
__device__ __forceinline__ void visit_staged(const F& function, typename F::Row& row, int pack,
                                             RawPack<F::kInputs>& raw,
                                             const typename F::KeepMask& mask,
                                             const Staging& staging, int slot, const Visit& visit) {
  constexpr bool kFits = kFragmentFitsRaw<F>;
  typename F::Fragment fragment;
  if constexpr (kFirstTime || !kFits) {
    if constexpr (kFirstTime && kPrepares<F>) {
      function.prepare(row, pack, mask, raw);
      if constexpr (!kFits) {
        store_staged(staging, slot, raw);
      }
    }
    function.to_fragment(row, pack, raw, fragment);
  } else {
    memcpy(&fragment, &raw, sizeof(raw));
  }
  visit(fragment);
  if constexpr (kFits && (kPrepares<F> || !kFragmentIsRaw<F>)) {
    memcpy(&raw, &fragment, sizeof(raw));
    store_staged(staging, slot, raw);
  }
}

/// Blocks keep a row in shared memory, as fragments where these have the size of raw packs; as many
/// as there are rows, or persistent ones. Slot s of a thread holds the pack `rank` of the s-th run
/// of as many packs as there are threads. Runs start at a cache line wherever the row starts: warp
/// accesses that straddle lines cost 6 %. As soon as a slot is read for the last time, the copy of
/// the next row's pack starts there.
template <RowFunction F>
__global__ void __launch_bounds__(F::kInputs == 1 ? 1024 : 512)
    shared_kernel(F function, int64_t steps, int blocks, int slots) {
  static_assert(!kHasRules<F>, "all packs of a row are read");
  extern __shared__ __align__(128) uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, slots);
  const int group_slots = (slots + kCopyGroups - 1) / kCopyGroups;
  constexpr int kBatch = 4 / F::kInputs;  // bounded by the registers
  const auto pack_in = [&](const typename F::Row& row, int slot) {
    return rank - row.packed.line + slot * size;
  };
  const auto all_read = [&](const typename F::Row& row, int slot) {
    const int pack = pack_in(row, slot);
    return pack >= row.packed.first && pack + (kBatch - 1) * size < row.packed.last;
  };
  const auto for_copy_group = [&](int part, const auto& whole, const auto& visit) {
    for_slots<kBatch>(part * group_slots, min(slots, (part + 1) * group_slots), whole, visit);
  };
  const int64_t stride = group.groups();
  int64_t step = group.index();
  auto row = function.row(step, NoWait());
  for (int part = 0; part < kCopyGroups; ++part) {
    for_copy_group(
        part, [&](int slot) { return all_read(row, slot); },
        [&](auto count, int slot) {
          const int pack = pack_in(row, slot);
#pragma unroll
          for (int i = 0; i < count; ++i) {
            if (count > 1 || row.packed.read(pack)) {
              load_async(function, row, pack + i * size, staging, slot + i);
            }
          }
        });
    commit_copies();
  }
  typename F::Edge edge = load_edge(function, row, rank);
  while (true) {
    const auto result = function.reduce(row, group, [&](auto first_time, const auto& visit) {
      for (int part = 0; part < kCopyGroups; ++part) {
        if constexpr (first_time) {
          wait_for_copy_group<kCopyGroups>(part);
        }
        for_copy_group(
            part, [&](int slot) { return all_read(row, slot); },
            [&](auto count, int slot) {
              const int pack = pack_in(row, slot);
              if (count == 1 && !row.packed.read(pack)) {
                return;
              }
              RawPack<F::kInputs> raws[count];
#pragma unroll
              for (int i = 0; i < count; ++i) {
                load_staged(staging, slot + i, raws[i]);
              }
              typename F::KeepMask masks[count];
              function.draw(row, pack, size, masks);
#pragma unroll
              for (int i = 0; i < count; ++i) {
                if constexpr (first_time && kMaxOfRaw<F>) {
                  visit(raws[i]);
                } else {
                  visit_staged<first_time>(function, row, pack + i * size, raws[i], masks[i],
                                           staging, slot + i, visit);
                }
              }
            });
      }
      visit(edge);
    });
    auto next = function.row(min(step + stride, steps - 1), NoWait());
    if (step + stride >= steps) {
      next.packed.clear();
    }
    const typename F::Edge next_edge = load_edge(function, next, rank);
    for (int part = 0; part < kCopyGroups; ++part) {
      for_copy_group(
          part, [&](int slot) { return all_read(row, slot) && all_read(next, slot); },
          [&](auto count, int slot) {
            const int pack = pack_in(row, slot), next_pack = pack_in(next, slot);
            typename F::KeepMask masks[count];
            function.draw(row, pack, size, masks);
            RawPack<F::kInputs> raws[count];
#pragma unroll
            for (int i = 0; i < count; ++i) {
              if (count > 1 || row.packed.read(pack)) {
                load_staged(staging, slot + i, raws[i]);
              }
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
              if (count > 1 || next.packed.read(next_pack)) {
                load_async(function, next, next_pack + i * size, staging, slot + i);
              }
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
              typename F::Fragment fragment;
              if (count > 1 || row.packed.read(pack)) {
                if constexpr (kFragmentFitsRaw<F>) {
                  memcpy(&fragment, &raws[i], sizeof(fragment));
                } else {
                  function.to_fragment(row, pack + i * size, raws[i], fragment);
                }
                function.write(row, pack + i * size, fragment, result, masks[i],
                               Stage<kFragmentFitsRaw<F>>());
              }
            }
          });
      commit_copies();
    }
    if (rank < row.packed.edges) {
      write_edge(function, row, rank, edge, result, kReduced);
    }
    step += stride;
    if (step >= steps) {
      return;
    }
    row = next;
    edge = next_edge;
  }
}

}  // namespace warpfuse::cuda
