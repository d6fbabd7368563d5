#pragma once

#include "rowwise/cuda/in_registers.cuh"

namespace warpfuse::cuda {

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

/// Calls visit(count, slot) for the slots [from, to): for kAtOnce at once where whole(slot) says
/// that all of them hold packs, else for one that may hold any.
template <int kAtOnce, typename Whole, typename Visit>
__device__ __forceinline__ void for_slots(int from, int to, const Whole& whole,
                                          const Visit& visit) {
  int slot = from;
  while (slot < to) {
    if (slot + kAtOnce <= to && whole(slot)) {
      visit(Count<kAtOnce>(), slot);
      slot += kAtOnce;
    } else {
      visit(Count<1>(), slot);
      ++slot;
    }
  }
}

/// Tiers block and cluster: the blocks of a row have it in their shared memory, as it came. The
/// packs of a thread are those in its place of each run of as many packs as there are threads,
/// which start with a line of the cache, whatever the row does: accesses of warps that straddle
/// lines cost 6 %. The blocks stay for other rows: as soon as a slot is read for the last time, the
/// copy of the next row's pack is started there.
template <typename Function>
__global__ void __launch_bounds__(sizeof(typename Function::RawPack) == sizeof(uint4) ? 1024 : 512)
    shared_kernel(Function function, int64_t steps, int blocks, int slots) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, slots);
  const int group_slots = (slots + kCopyGroups - 1) / kCopyGroups;
  constexpr int kAtOnce = 64 / sizeof(typename Function::RawPack);  // as registers have room for
  const auto pack_in = [&](const typename Function::Row& row, int slot) {
    return rank - row.layout.line + slot * size;
  };
  const auto all_read = [&](const typename Function::Row& row, int slot) {
    const int pack = pack_in(row, slot);
    return pack >= row.layout.first && pack + (kAtOnce - 1) * size < row.layout.last;
  };
  const auto for_part = [&](int part, const auto& whole, const auto& visit) {
    for_slots<kAtOnce>(part * group_slots, min(slots, (part + 1) * group_slots), whole, visit);
  };
  const int64_t stride = group.groups();
  int64_t step = group.index();
  auto row = function.row(step);
  for (int part = 0; part < kCopyGroups; ++part) {
    for_part(
        part, [&](int slot) { return all_read(row, slot); },
        [&](auto count, int slot) {
          const int pack = pack_in(row, slot);
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
        for_part(
            part, [&](int slot) { return all_read(row, slot); },
            [&](auto count, int slot) {
              const int pack = pack_in(row, slot);
              if (count == 1 && !row.layout.read(pack)) {
                return;
              }
              typename Function::RawPack bits[count];
#pragma unroll
              for (int i = 0; i < count; ++i) {
                bits[i] = Function::staged(staging, slot + i);
              }
              typename Function::KeepMask drawn[count];
              function.draw(row, pack, size, drawn);
#pragma unroll
              for (int i = 0; i < count; ++i) {
                typename Function::Fragment kept;
                if constexpr (first_time && Function::kMaxOfRaw) {
                  visit(bits[i]);
                  continue;
                }
                if constexpr (Function::kAltersBits) {
                  if constexpr (first_time) {
                    Function::alter(drawn[i], bits[i]);
                    staging.store(slot + i, 0, bits[i].x);
                  }
                }
                if constexpr (!Function::kFragmentFitsRaw) {
                  function.keep_altered(row, pack + i * size, bits[i], kept);
                } else if constexpr (first_time) {
                  function.keep(row, pack + i * size, bits[i], kept, drawn[i]);
                } else {
                  Function::fragment_from_raw(bits[i], kept);
                }
                visit(kept);
                if constexpr (Function::kFragmentFitsRaw) {
                  Function::stage_fragment(kept, staging, slot + i);
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
    for (int part = 0; part < kCopyGroups; ++part) {
      for_part(
          part, [&](int slot) { return all_read(row, slot) && all_read(next, slot); },
          [&](auto count, int slot) {
            const int pack = pack_in(row, slot), next_pack = pack_in(next, slot);
            typename Function::KeepMask drawn[count];
            function.draw(row, pack, size, drawn);
            typename Function::RawPack bits[count];
#pragma unroll
            for (int i = 0; i < count; ++i) {
              if (count > 1 || row.layout.read(pack)) {
                bits[i] = Function::staged(staging, slot + i);
              }
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
              if (count > 1 || next.layout.read(next_pack)) {
                function.stage(next, next_pack + i * size, staging, slot + i);
              }
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
              typename Function::Fragment kept;
              if (count > 1 || row.layout.read(pack)) {
                if constexpr (Function::kFragmentFitsRaw) {
                  Function::fragment_from_raw(bits[i], kept);
                } else {
                  function.keep_altered(row, pack + i * size, bits[i], kept);
                  function.prepare(kept, result);
                }
              }
              if (count > 1 || (pack >= 0 && pack < row.layout.packs)) {
                function.write(row, pack + i * size, kept, result, drawn[i]);
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
