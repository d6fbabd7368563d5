#pragma once

#include "rowwise/cuda/row_packs.cuh"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

// Tier stream: rows that no tier holds are read twice, to reduce them and to write the result. The
// blocks of a row, if there are several, exchange partials between two kernels.

/// One of `parts` ranges of a row's packs; the first also has the edges. Ranges begin at cache
/// lines: warps that read across lines make many more L2 requests.
struct PackRange {
  int line;  // the pack at the start of the first cache line; at most 0 in the first range
  int begin, end, edges;

  template <typename T>
  __device__ PackRange(const PackedRow<T>& packed, int part, int parts) {
    const int lines = (packed.line + packed.packs + kLinePacks - 1) / kLinePacks;
    const int part_packs = (lines + parts - 1) / parts * kLinePacks;
    line = min(packed.packs, part * part_packs - packed.line);
    begin = max(0, line);
    end = min(packed.packs, line + part_packs);
    edges = part == 0 ? packed.edges : 0;
  }
};

/// Packs that a lane reads at once. One with a mask takes up to 18 KB of code, and attention reads
/// rows twice from 65,000 keys on, with dropout from 130,000.
template <RowFunction F>
constexpr int kTwoPassPacks = !kHasRules<F> ? kStreamLanePacks
                              : kDrops<F>   ? 1
                                            : 2;

/// Adds raws[i], pack + i * size of the row, where it is in [from, to).
template <int kPacks, RowFunction F>
__device__ __forceinline__ void add_packs(const F& function, typename F::Row& row,
                                          typename F::Accumulator& accumulator,
                                          const RawPack<F::kInputs> (&raws)[kPacks], int pack,
                                          int size, int from, int to) {
  typename F::KeepMask masks[kPacks];
  function.draw(row, pack, size, masks);
  typename F::Fragment fragment;
  bool max_known = false;
  if constexpr (kMaxOfRaw<F>) {
    max_known = pack >= from && pack + (kPacks - 1) * size < to;
    if (max_known) {
      function.update_max(accumulator, raws);
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (pack + i * size >= from && pack + i * size < to) {
      prepare_fragment(function, row, pack + i * size, raws[i], masks[i], fragment);
      if constexpr (kMaxOfRaw<F>) {
        if (max_known) {
          function.add(accumulator, fragment, std::true_type());
          continue;
        }
      }
      function.add(accumulator, fragment);
    }
  }
}

/// Reduces what a lane reads of a range.
template <RowFunction F, typename Group>
__device__ typename F::Accumulator read_range(const F& function, typename F::Row& row,
                                              const PackRange& range, const Group& group) {
  typename F::Accumulator accumulator{};
  constexpr int kPacks = kTwoPassPacks<F>;
  RawPack<F::kInputs> raws[kPacks];
  const int size = group.size();
  const int last = min(range.end, row.packed.last);
  for (int pack = max(range.begin, row.packed.first) + group.rank(); pack < last;
       pack += kPacks * size) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (pack + i * size < last) {
        load(function, row, pack + i * size, raws[i]);
      }
    }
    add_packs(function, row, accumulator, raws, pack, size, 0, last);
  }
  if (group.rank() < range.edges) {
    function.add(accumulator, load_edge(function, row, group.rank()));
  }
  return accumulator;
}

/// Reads the range again and writes it.
template <RowFunction F, typename Group>
__device__ void write_range(const F& function, typename F::Row& row, const PackRange& range,
                            const Group& group, const typename F::Result& result) {
  constexpr int kPacks = kTwoPassPacks<F>;
  RawPack<F::kInputs> raws[kPacks];
  typename F::Fragment fragment;
  const int size = group.size();
  for (int pack = range.begin + group.rank(); pack < range.end; pack += kPacks * size) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (pack + i * size < range.end && row.packed.read(pack + i * size)) {
        load(function, row, pack + i * size, raws[i]);
      }
    }
    typename F::KeepMask masks[kPacks];
    function.draw(row, pack, size, masks);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (pack + i * size < range.end) {
        if (row.packed.read(pack + i * size)) {
          prepare_fragment(function, row, pack + i * size, raws[i], masks[i], fragment);
        }
        function.write(row, pack + i * size, fragment, result, masks[i], kAsRead);
      }
    }
  }
  if (group.rank() < range.edges) {
    write_edge(function, row, group.rank(), load_edge(function, row, group.rank()), result,
               kAsRead);
  }
}

/// `parts` blocks a row: this kernel stores partials[rows][parts], and
/// split_write_kernel merges them before it reads the row again.
template <RowFunction F>
__global__ void __launch_bounds__(512)
    split_read_kernel(F function, int parts, typename F::Partial* partials) {
  wait_for_previous_kernel();
  BlockGroup group(1);
  auto row = function.row(blockIdx.x / parts, NoWait());
  const PackRange range(row.packed, static_cast<int>(blockIdx.x) % parts, parts);
  const auto accumulator = read_range(function, row, range, group);
  const auto total = function.total(row, group, accumulator);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = total;
  }
}

/// Merges the partials [parts] of a row.
template <RowFunction F>
__device__ typename F::Partial merge_parts(const F& function, BlockGroup& group,
                                           const typename F::Partial* partials, int parts) {
  auto merged = F::Partial::none();
  for (int part = group.rank(); part < parts; part += group.size()) {
    merged = function.merge(merged, partials[part]);
  }
  return group.total(function, function.merge(group.lanes(), merged));
}

template <RowFunction F>
__global__ void __launch_bounds__(512)
    split_write_kernel(F function, int parts, const typename F::Partial* partials) {
  wait_for_previous_kernel();
  BlockGroup group(1);
  // In reverse: the ranges that were read last are still in the L2 cache.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int index = block / parts;
  auto row = function.row(index, NoWait());
  const auto total = merge_parts(function, group, partials + index * parts, parts);
  write_range(function, row, PackRange(row.packed, block % parts, parts), group,
              function.finish(row, total));
}

}  // namespace warpfuse::cuda
