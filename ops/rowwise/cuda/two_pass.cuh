#pragma once

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

// Rows that are kept nowhere: they are read twice.

/// One of `parts` of a row: a range of its packs, and the edges in the first part. Parts begin
/// where cache lines do: warps that read across lines make many more requests of the L2 cache.
struct PackRange {
  int line;  // the pack at the start of the line in which the part begins; not above 0 in the first
  int begin, end, edges;

  template <typename Layout>
  __device__ PackRange(const Layout& layout, int part, int parts) {
    const int lines = (layout.line + layout.packs + kLinePacks - 1) / kLinePacks;
    const int of_part = (lines + parts - 1) / parts * kLinePacks;
    line = min(layout.packs, part * of_part - layout.line);
    begin = max(0, line);
    end = min(layout.packs, line + of_part);
    edges = part == 0 ? layout.edges : 0;
  }
};

/// Adds what a thread has of the packs [from, to): pack i * size + pack in bits[i].
template <typename Function>
__device__ __forceinline__ void add_packs(
    const Function& function, typename Function::Row& row, typename Function::Partial& partial,
    const typename Function::RawPack (&bits)[kStreamLanePacks], int pack, int size, int from,
    int to) {
  typename Function::KeepMask drawn[kStreamLanePacks];
  function.draw(row, pack, size, drawn);
  typename Function::Fragment kept;
  bool raised = false;
  if constexpr (Function::kMaxOfRaw) {
    raised = pack >= from && pack + (kStreamLanePacks - 1) * size < to;
    if (raised) {
      function.raise(partial, bits);
    }
  }
#pragma unroll
  for (int i = 0; i < kStreamLanePacks; ++i) {
    if (pack + i * size >= from && pack + i * size < to) {
      function.keep(row, pack + i * size, bits[i], kept, drawn[i]);
      if constexpr (Function::kMaxOfRaw) {
        if (raised) {
          function.accumulate(partial, kept);
          continue;
        }
      }
      function.add(partial, kept);
    }
  }
}

/// What the lanes of a group find in a part of a row.
template <typename Function, typename Group>
__device__ typename Function::Partial read_part(const Function& function,
                                                typename Function::Row& row, const PackRange& part,
                                                const Group& group) {
  typename Function::Partial partial{};
  typename Function::RawPack bits[kStreamLanePacks];
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
    add_packs(function, row, partial, bits, pack, size, 0, last);
  }
  if (group.rank() < part.edges) {
    function.add(partial, function.edge(row, group.rank()));
  }
  return partial;
}

/// Reads the part again and writes it.
template <typename Function, typename Group>
__device__ void write_part(const Function& function, typename Function::Row& row,
                           const PackRange& part, const Group& group,
                           const typename Function::Result& result) {
  typename Function::RawPack bits[kStreamLanePacks];
  typename Function::Fragment kept;
  const int size = group.size();
  for (int pack = part.begin + group.rank(); pack < part.end; pack += kStreamLanePacks * size) {
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < part.end && row.layout.read(pack + i * size)) {
        function.fetch(row, pack + i * size, bits[i]);
      }
    }
    typename Function::KeepMask drawn[kStreamLanePacks];
    function.draw(row, pack, size, drawn);
#pragma unroll
    for (int i = 0; i < kStreamLanePacks; ++i) {
      if (pack + i * size < part.end) {
        if (row.layout.read(pack + i * size)) {
          function.keep(row, pack + i * size, bits[i], kept, drawn[i]);
          function.prepare(kept, result);
        }
        function.write(row, pack + i * size, kept, result, drawn[i]);
      }
    }
  }
  if (group.rank() < part.edges) {
    auto edge = function.edge(row, group.rank());
    function.prepare(edge, result);
    function.write_edge(row, group.rank(), edge, result);
  }
}

/// All of a row by one group.
template <typename Function, typename Group>
__device__ __forceinline__ void read_and_write(const Function& function,
                                               typename Function::Row& row, Group& group) {
  const PackRange all(row.layout, 0, 1);
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
  const PackRange part(row.layout, static_cast<int>(blockIdx.x) % parts, parts);
  const auto partial = read_part(function, row, part, group);
  const auto total = function.total(row, group, partial);
  if (threadIdx.x == 0) {
    summaries[blockIdx.x] = total;
  }
}

/// What all parts of a row found.
template <typename Function>
__device__ typename Function::Summary total_of_parts(const Function& function, BlockGroup& group,
                                                     const typename Function::Summary* summaries,
                                                     int parts) {
  auto of_thread = Function::nothing();
  for (int part = group.rank(); part < parts; part += group.size()) {
    of_thread = function.join(of_thread, summaries[part]);
  }
  return group.total(function, function.merge(group.lanes(), of_thread));
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
  const auto total = total_of_parts(function, group, summaries + index * parts, parts);
  write_part(function, row, PackRange(row.layout, block % parts, parts), group,
             function.finish(row, total));
}

}  // namespace warpfuse::cuda
