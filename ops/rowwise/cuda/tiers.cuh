#pragma once

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

// The tiers: each says where the packs of a row live between their read and their write. Function
// is Forward or Backward. A row has at most one edge a lane: a plan has lanes enough.

// --- rows in registers ------------------------------------------------------------------------

/// A row that is kept in the registers of the group's lanes, pack i * size + rank in slot i.
template <int kLanePacks, typename Function, typename Group>
__device__ __forceinline__ void reduce_and_write(const Function& function,
                                                 const typename Function::Row& row, Group& group,
                                                 typename Function::Kept (&kept)[kLanePacks],
                                                 typename Function::Edge& edge) {
  const int rank = group.rank(), size = group.size();
  const auto result = function.reduce(row, group, [&](auto, const auto& visit) {

#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        visit(kept[i]);
      }
    }
    visit(edge);
  });
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.layout.packs) {
      function.write(row, rank + i * size, kept[i], result);
    }
  }
  if (rank < row.layout.edges) {
    function.write_edge(row, rank, edge, result);
  }
}

/// One row by way of registers.
template <int kLanePacks, typename Function, typename Group>
__device__ __forceinline__ void row_in_registers(const Function& function,
                                                 typename Function::Row& row, Group& group) {
  typename Function::Bits bits[kLanePacks];
  typename Function::Kept kept[kLanePacks];
  typename Function::Edge edge = Function::no_edge();
  const int rank = group.rank(), size = group.size();
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.layout.read(rank + i * size)) {
      function.fetch(row, rank + i * size, bits[i]);
    }
  }
  if (rank < row.layout.edges) {
    edge = function.edge(row, rank);
  }
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.layout.read(rank + i * size)) {
      function.keep(row, rank + i * size, bits[i], kept[i]);
    }
  }
  reduce_and_write(function, row, group, kept, edge);
}

/// Tier warp: `lanes` of a warp share a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256)
    warp_kernel(Function function, int64_t steps, int lanes, int lanes_log2) {
  wait_for_previous_kernel();
  LaneGroup group(lanes);
  const int64_t step =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x >> lanes_log2) + (threadIdx.x >> lanes_log2);
  auto row = function.row(min(step, steps - 1));
  if (step >= steps) {
    row.layout.clear();  // the lanes stay: their warp reduces together
  }
  row_in_registers<kLanePacks>(function, row, group);
}

/// Tiers block and cluster: the blocks of a row have it in their registers.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(kLanePacks <= 4 ? 1024 : 512)
    block_kernel(Function function, int blocks) {
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  auto row = function.row(group.index());
  row_in_registers<kLanePacks>(function, row, group);
}

// --- rows in registers, the next one on its way -----------------------------------------------

/// Tiers block and cluster, for blocks that stay for many rows: while a row is in their registers,
/// the next one is copied to their shared memory, each thread's packs by itself.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(kLanePacks * sizeof(typename Function::Kept) <= 128 ? 1024 : 512)
    ahead_kernel(Function function, int64_t steps, int blocks) {
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  BlockGroup group(blocks);
  const int rank = group.rank(), size = group.size(), threads = static_cast<int>(blockDim.x);
  const Staging staging{memory + threadIdx.x, threads, kLanePacks};
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

// --- rows in shared memory --------------------------------------------------------------------

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

/// Calls visit(slot, pack) for the slots [from, to) that hold packs below `last`, four at a time
/// where none of the four is missing.
template <typename Visit>
__device__ __forceinline__ void for_slots(int from, int to, int rank, int size, int first, int last,
                                          const Visit& visit) {
  constexpr int kAtOnce = 4;
  int slot = from;
  for (; slot + kAtOnce <= to && rank + (slot + kAtOnce - 1) * size < last; slot += kAtOnce) {
    if (rank + slot * size >= first) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        visit(slot + i, rank + (slot + i) * size);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kAtOnce; ++i) {
        if (rank + (slot + i) * size >= first) {
          visit(slot + i, rank + (slot + i) * size);
        }
      }
    }
  }
#pragma unroll 1
  for (; slot < to; ++slot) {
    const int pack = rank + slot * size;
    if (pack >= first && pack < last) {
      visit(slot, pack);
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
  const int rank = group.rank(), size = group.size(), threads = static_cast<int>(blockDim.x);
  const Staging staging{memory + threadIdx.x, threads, slots};
  const int group_slots = (slots + kCopyGroups - 1) / kCopyGroups;
  const int64_t stride = group.groups();
  int64_t step = group.index();
  auto row = function.row(step);
  for (int part = 0; part < kCopyGroups; ++part) {
    for_slots(part * group_slots, min(slots, (part + 1) * group_slots), rank, size,
              row.layout.first, row.layout.last,
              [&](int slot, int pack) { function.stage(row, pack, staging, slot); });
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
        for_slots(part * group_slots, min(slots, (part + 1) * group_slots), rank, size,
                  row.layout.first, row.layout.last, [&](int slot, int pack) {
                    auto bits = Function::staged(staging, slot);
                    typename Function::Kept kept;
                    if constexpr (first_time && Function::kMaxOfBits) {
                      visit(bits);
                      return;
                    }
                    if constexpr (first_time || !Function::kKeptInBits) {
                      function.keep(row, pack, bits, kept);
                    } else {
                      Function::kept_in_bits(bits, kept);
                    }
                    visit(kept);
                    if constexpr (Function::kKeptInBits) {
                      Function::keep_staged(kept, staging, slot);
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
      for_slots(part * group_slots, min(slots, (part + 1) * group_slots), rank, size, 0,
                max(row.layout.packs, next.layout.packs), [&](int slot, int pack) {
                  typename Function::Kept kept;
                  if (row.layout.read(pack)) {
                    const auto bits = Function::staged(staging, slot);
                    if constexpr (Function::kKeptInBits) {
                      Function::kept_in_bits(bits, kept);
                    } else {
                      function.keep(row, pack, bits, kept);
                      function.prepare(kept, result);
                    }
                  }
                  if (next.layout.read(pack)) {
                    function.stage(next, pack, staging, slot);
                  }
                  if (pack < row.layout.packs) {
                    function.write(row, pack, kept, result);
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

// --- rows that are read twice -----------------------------------------------------------------

/// One of `parts` of a row: a range of its packs, and the edges in the first part.
struct RowPart {
  int begin, end, edges;

  template <typename Layout>
  __device__ RowPart(const Layout& layout, int part, int parts) {
    const int of_part = (layout.packs + parts - 1) / parts;
    begin = min(layout.packs, part * of_part);
    end = min(layout.packs, begin + of_part);
    edges = part == 0 ? layout.edges : 0;
  }
};

/// What the lanes of a group find in a part of a row.
template <typename Function, typename Group>
__device__ typename Function::Partial read_part(const Function& function,
                                                typename Function::Row& row, const RowPart& part,
                                                const Group& group) {
  typename Function::Partial partial{};
  typename Function::Bits bits[kStreamLanePacks];
  typename Function::Kept kept;
  const int size = group.size();
  const int last = min(part.end, row.layout.last);
  for (int pack = max(part.begin, row.layout.first) + group.rank(); pack < last;
       pack += kStreamLanePacks * size) {
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < last) {
        function.fetch(row, pack + i * size, bits[i]);
      }
    }
    bool raised = false;
    if constexpr (Function::kMaxOfBits) {
      raised = pack + (kStreamLanePacks - 1) * size < last;
      if (raised) {
        Function::raise(partial, bits);
      }
    }
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < last) {
        function.keep(row, pack + i * size, bits[i], kept);
        if constexpr (Function::kMaxOfBits) {
          if (raised) {
            Function::accumulate(partial, kept);
            continue;
          }
        }
        function.add(partial, kept);
      }
    }
  }
  if (group.rank() < part.edges) {
    function.add(partial, function.edge(row, group.rank()));
  }
  return partial;
}

/// Reads the part again and writes it.
template <typename Function, typename Group>
__device__ void write_part(const Function& function, typename Function::Row& row,
                           const RowPart& part, const Group& group,
                           const typename Function::Result& result) {
  typename Function::Bits bits[kStreamLanePacks];
  typename Function::Kept kept;
  const int size = group.size();
  for (int pack = part.begin + group.rank(); pack < part.end; pack += kStreamLanePacks * size) {
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < part.end && row.layout.read(pack + i * size)) {
        function.fetch(row, pack + i * size, bits[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < part.end) {
        if (row.layout.read(pack + i * size)) {
          function.keep(row, pack + i * size, bits[i], kept);
          function.prepare(kept, result);
        }
        function.write(row, pack + i * size, kept, result);
      }
    }
  }
  if (group.rank() < part.edges) {
    auto edge = function.edge(row, group.rank());
    function.prepare(edge, result);
    function.write_edge(row, group.rank(), edge, result);
  }
}

/// Tier warp for rows that do not fit its registers: a warp reads its row twice.
template <typename Function>
__global__ void __launch_bounds__(256) warp_stream_kernel(Function function, int64_t steps) {
  wait_for_previous_kernel();
  LaneGroup group(32);
  const int64_t step = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (step >= steps) {
    return;
  }
  auto row = function.row(step);
  const RowPart all(row.layout, 0, 1);
  const auto partial = read_part(function, row, all, group);
  write_part(function, row, all, group, function.finish(row, function.total(row, group, partial)));
}

/// Tier stream: a block reads its row twice.
template <typename Function>
__global__ void __launch_bounds__(512) stream_kernel(Function function) {
  wait_for_previous_kernel();
  BlockGroup group(1);
  auto row = function.row(blockIdx.x);
  const RowPart all(row.layout, 0, 1);
  const auto partial = read_part(function, row, all, group);
  write_part(function, row, all, group, function.finish(row, function.total(row, group, partial)));
}

/// Tier stream for few rows: `parts` blocks a row leave what they found in `summaries` [rows,
/// parts], and the next kernel adds that up before it reads the row again.
template <typename Function>
__global__ void __launch_bounds__(512)
    split_read_kernel(Function function, int parts, typename Function::Summary* summaries) {
  wait_for_previous_kernel();
  BlockGroup group(1);
  auto row = function.row(blockIdx.x / parts);
  const RowPart part(row.layout, static_cast<int>(blockIdx.x) % parts, parts);
  const auto partial = read_part(function, row, part, group);
  const auto total = function.total(row, group, partial);
  if (threadIdx.x == 0) {
    summaries[blockIdx.x] = total;
  }
}

template <typename Function>
__global__ void __launch_bounds__(512)
    split_write_kernel(Function function, int parts, const typename Function::Summary* summaries) {
  wait_for_previous_kernel();
  BlockGroup group(1);
  // What was read last is still in the cache: the blocks of this kernel come in reverse.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int index = block / parts;
  auto row = function.row(index);
  auto of_thread = Function::nothing();
  for (int part = static_cast<int>(threadIdx.x); part < parts; part += group.size()) {
    of_thread = Function::join(of_thread, summaries[index * parts + part]);
  }
  const auto total = group.template total<Function>(Function::merge(group.lanes(), of_thread));
  write_part(function, row, RowPart(row.layout, block % parts, parts), group,
             function.finish(row, total));
}

}  // namespace warpfuse::cuda
