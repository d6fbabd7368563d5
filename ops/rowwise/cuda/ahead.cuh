#pragma once

#include "rowwise/cuda/registers.cuh"

namespace warpfuse::cuda {

// Tiers block and cluster for blocks that stay for many rows, with the next row on its way.

/// Tiers block and cluster, for blocks that stay for many rows: while a row is in their registers,
/// the next one is copied to their shared memory, each thread's packs by itself.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(kLanePacks * sizeof(typename Function::Kept) <= 128 ? 1024 : 512)
    ahead_kernel(Function function, int64_t steps, int blocks) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, kLanePacks);
  const int64_t stride = group.groups();
  typename Function::Edge edge = Function::no_edge();
  bool visible = false;  // the edge that was read ahead is
  const auto start = [&](int64_t step) {
    auto row = function.row(step);
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        function.stage(row, rank + i * size, staging, i);
      }
    }
    commit_copies();
    edge = rank < row.layout.edges ? function.edge(row, rank) : Function::no_edge();
    visible = Function::saw_visible(row);
  };
  int64_t step = group.index();
  start(step);
  for (; step < steps; step += stride) {
    auto row = function.row(step);
    Function::see_visible(row, visible);
    typename Function::Kept kept[kLanePacks];
    auto kept_edge = edge;
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        function.keep(row, rank + i * size, Function::staged(staging, i), kept[i]);
      }
    }
    if (step + stride < steps) {
      start(step + stride);
    }
    reduce_and_write(function, row, group, kept, kept_edge);
  }
}

/// The copies to shared memory of a row are under way in so many groups: the first is worked on
/// while the others come.
inline constexpr int kCopyGroups = 4;

/// Waits for the first group + 1 of kCopyGroups groups.
__device__ __forceinline__ void wait_for_group(int group) {
  switch (group) {
    case 0:
      return wait_for_copies<3>();
    case 1:
      return wait_for_copies<2>();
    case 2:
      return wait_for_copies<1>();
    default:
      return wait_for_copies<0>();
  }
}

template <int kCount>
using Count = std::integral_constant<int, kCount>;

/// Calls visit(count, slot, pack) for the slots [from, to): for kAtOnce at once where all of them
/// hold packs of [first, last), else for one that may hold any.
template <int kAtOnce, typename Visit>
__device__ __forceinline__ void for_slots(int from, int to, int rank, int size, int first, int last,
                                          const Visit& visit) {
  int slot = from, pack = rank + from * size;
  while (slot < to) {
    if (slot + kAtOnce <= to && pack >= first && pack + (kAtOnce - 1) * size < last) {
      visit(Count<kAtOnce>(), slot, pack);
      slot += kAtOnce;
      pack += kAtOnce * size;
    } else {
      visit(Count<1>(), slot, pack);
      ++slot;
      pack += size;
    }
  }
}

/// Tiers block and cluster: the blocks of a row have it in their shared memory, as it came, pack
/// i * size + rank in slot i of a thread. The blocks stay for other rows: as soon as a slot is
/// written, the copy of the next row's pack is started there.
template <typename Function>
__global__ void __launch_bounds__(1024)
    shared_kernel(Function function, int64_t steps, int blocks, int slots) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, slots);
  const int group_slots = (slots + kCopyGroups - 1) / kCopyGroups;
  constexpr int kAtOnce = 64 / sizeof(typename Function::Bits);  // as registers have room for
  const int64_t stride = group.groups();
  int64_t step = group.index();
  auto row = function.row(step);
  const auto for_part = [&](int part, int first, int last, const auto& visit) {
    for_slots<kAtOnce>(part * group_slots, min(slots, (part + 1) * group_slots), rank, size, first,
                       last, visit);
  };
  for (int part = 0; part < kCopyGroups; ++part) {
    for_part(part, row.layout.first, row.layout.last, [&](auto count, int slot, int pack) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (count > 1 || row.layout.read(pack)) {
          function.stage(row, pack + i * size, staging, slot + i);
        }
      }
    });
    commit_copies();
  }
  typename Function::Edge edge =
      rank < row.layout.edges ? function.edge(row, rank) : Function::no_edge();
  while (true) {
    const auto result = function.reduce(row, group, [&](auto first_time, const auto& visit) {
      for (int part = 0; part < kCopyGroups; ++part) {
        if constexpr (first_time) {
          wait_for_group(part);
        }
        for_part(part, row.layout.first, row.layout.last, [&](auto count, int slot, int pack) {
          if (count == 1 && !row.layout.read(pack)) {
            return;
          }
          typename Function::Bits bits[count];
#pragma unroll
          for (int i = 0; i < count; ++i) {
            bits[i] = Function::staged(staging, slot + i);
          }
#pragma unroll
          for (int i = 0; i < count; ++i) {
            typename Function::Kept kept;
            if constexpr (first_time && Function::kMaxOfBits) {
              visit(bits[i]);
              continue;
            }
            if constexpr (first_time || !Function::kKeptInBits) {
              function.keep(row, pack + i * size, bits[i], kept);
            } else {
              Function::kept_in_bits(bits[i], kept);
            }
            visit(kept);
            if constexpr (Function::kKeptInBits) {
              Function::keep_staged(kept, staging, slot + i);
            }
          }
        });
      }
      visit(edge);
    });
    auto next = function.row(min(step + stride, steps - 1));
    if (step + stride >= steps) {
      next.layout.clear();
    }
    const typename Function::Edge next_edge =
        rank < next.layout.edges ? function.edge(next, rank) : Function::no_edge();
    const int both_first = max(row.layout.first, next.layout.first);
    const int both_last = min(row.layout.last, next.layout.last);
    for (int part = 0; part < kCopyGroups; ++part) {
      for_part(part, both_first, both_last, [&](auto count, int slot, int pack) {
        typename Function::Bits bits[count];
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (count > 1 || row.layout.read(pack)) {
            bits[i] = Function::staged(staging, slot + i);
          }
        }
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (count > 1 || next.layout.read(pack)) {
            function.stage(next, pack + i * size, staging, slot + i);
          }
        }
#pragma unroll
        for (int i = 0; i < count; ++i) {
          typename Function::Kept kept;
          if (count > 1 || row.layout.read(pack)) {
            if constexpr (Function::kKeptInBits) {
              Function::kept_in_bits(bits[i], kept);
            } else {
              function.keep(row, pack + i * size, bits[i], kept);
              function.prepare(kept, result);
            }
          }
          if (count > 1 || pack < row.layout.packs) {
            function.write(row, pack + i * size, kept, result);
          }
        }
      });
      commit_copies();
    }
    if (rank < row.layout.edges) {
      function.write_edge(row, rank, edge, result);
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
