#pragma once

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// The tiers: each says where the packs of a row live between their read and their write. Function
// is Forward or Backward.

/// Reads up to kCount packs of a row, `pack`, `pack` + step and so on below `last`, all loads
/// before the first use.
template <int kCount, typename Function>
__device__ __forceinline__ void fetch_packs(const Function& function,
                                            const typename Function::Row& row, int pack, int step,
                                            int last, typename Function::Bits (&bits)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (pack + i * step < last && function.whole(row, pack + i * step)) {
      function.fetch(row, pack + i * step, bits[i]);
    }
  }
  if (function.ragged(row)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = pack + i * step;
      if (at < last && row.layout.read(at) && !function.whole(row, at)) {
        function.gather(row, at, bits[i]);
      }
    }
  }
}

/// One row, its packs in the registers of the group's lanes: pack i * size + rank in slot i.
template <int kLanePacks, typename Function, typename Group>
__device__ __forceinline__ void row_in_registers(const Function& function,
                                                 typename Function::Row& row, const Group& group) {
  typename Function::Bits bits[kLanePacks];
  typename Function::Kept kept[kLanePacks];
  const int rank = group.rank(), size = group.size();
  fetch_packs(function, row, rank, size, row.layout.last, bits);
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.layout.read(rank + i * size)) {
      function.keep(row, rank + i * size, bits[i], kept[i]);
    }
  }
  const auto result = function.reduce(row, group, [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        visit(kept[i]);
      }
    }
  });
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.layout.packs) {
      function.write(row, rank + i * size, kept[i], result);
    }
  }
}

/// Tier warp: `lanes` of a warp share a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256) warp_kernel(Function function, int64_t steps, int lanes) {
  wait_for_previous_kernel();
  const LaneGroup group(lanes);
  const int64_t step =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes) + threadIdx.x / lanes;
  auto row = function.row(min(step, steps - 1));
  if (step >= steps || !row.exists()) {
    row.layout.clear();  // the lanes stay: their warp reduces together
  }
  row_in_registers<kLanePacks>(function, row, group);
}

/// Tiers block and cluster: the blocks of a row have it in their registers.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(kLanePacks <= 4 ? 1024 : 512)
    block_kernel(Function function, int blocks) {
  wait_for_previous_kernel();
  const BlockGroup group(blocks);
  auto row = function.row(blockIdx.x / blocks);
  row_in_registers<kLanePacks>(function, row, group);
}

/// Tiers block and cluster: the blocks of a row have it in their shared memory, as it came. A
/// thread touches its own packs alone.
template <typename Function>
__global__ void __launch_bounds__(1024) shared_kernel(Function function, int blocks) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* staged = reinterpret_cast<typename Function::Bits*>(memory);
  wait_for_previous_kernel();
  const BlockGroup group(blocks);
  auto row = function.row(blockIdx.x / blocks);
  const int rank = group.rank(), size = group.size();
  const int packs = row.layout.packs, threads = static_cast<int>(blockDim.x);
  // Four groups of copies: the first is worked on while the others are on their way.
  constexpr int kGroups = 4;
  const int slots = (packs + size - 1) / size, group_slots = (slots + kGroups - 1) / kGroups;
  for (int part = 0, slot = 0; part < kGroups; ++part) {
    for (const int end = min(slots, slot + group_slots); slot < end; ++slot) {
      const int pack = rank + slot * size;
      auto* at = staged + slot * threads + threadIdx.x;
      if (row.layout.read(pack)) {
        if (function.whole(row, pack)) {
          function.stage(row, pack, at);
        } else {
          function.gather(row, pack, *at);
        }
      }
    }
    commit_copies();
  }
  typename Function::Partial partial{};
  typename Function::Kept kept;
  const auto add = [&](int part) {
    for (int slot = part * group_slots; slot < min(slots, (part + 1) * group_slots); ++slot) {
      const int pack = rank + slot * size;
      if (row.layout.read(pack)) {
        function.keep(row, pack, staged[slot * threads + threadIdx.x], kept);
        function.add(partial, kept);
      }
    }
  };
  wait_for_copies<3>();
  add(0);
  wait_for_copies<2>();
  add(1);
  wait_for_copies<1>();
  add(2);
  wait_for_copies<0>();
  add(3);
  const auto result = function.finish(row, function.total(row, group, partial));
  for (int slot = 0; slot < slots; ++slot) {
    const int pack = rank + slot * size;
    if (pack < packs) {
      if (row.layout.read(pack)) {
        function.keep(row, pack, staged[slot * threads + threadIdx.x], kept);
        function.prepare(kept, result);
      }
      function.write(row, pack, kept, result);
    }
  }
}

/// The packs of one part of a row.
struct PackRange {
  int begin, end;

  __device__ PackRange(int packs, int part, int parts) {
    const int of_part = (packs + parts - 1) / parts;
    begin = min(packs, part * of_part);
    end = min(packs, begin + of_part);
  }
};

/// Packs that a lane reads ahead where it keeps none.
inline constexpr int kStreamPacks = 4;

/// What the lanes of a group find in a part of a row.
template <typename Function, typename Group>
__device__ typename Function::Partial read_part(const Function& function,
                                                typename Function::Row& row, const PackRange& range,
                                                const Group& group) {
  typename Function::Partial partial{};
  typename Function::Bits bits[kStreamPacks];
  typename Function::Kept kept;
  const int size = group.size();
  const int last = min(range.end, row.layout.last);
  for (int pack = max(range.begin, row.layout.first) + group.rank(); pack < last;
       pack += kStreamPacks * size) {
    fetch_packs(function, row, pack, size, last, bits);
#pragma unroll
    for (int i = 0; i < kStreamPacks; ++i) {
      if (pack + i * size < last) {
        function.keep(row, pack + i * size, bits[i], kept);
        function.add(partial, kept);
      }
    }
  }
  return partial;
}

/// Reads the part again and writes it.
template <typename Function, typename Group>
__device__ void write_part(const Function& function, typename Function::Row& row,
                           const PackRange& range, const Group& group,
                           const typename Function::Result& result) {
  typename Function::Bits bits[kStreamPacks];
  typename Function::Kept kept;
  const int size = group.size();
  for (int pack = range.begin + group.rank(); pack < range.end; pack += kStreamPacks * size) {
    fetch_packs(function, row, pack, size, range.end, bits);
#pragma unroll
    for (int i = 0; i < kStreamPacks; ++i) {
      const int at = pack + i * size;
      if (at < range.end) {
        if (row.layout.read(at)) {
          function.keep(row, at, bits[i], kept);
          function.prepare(kept, result);
        }
        function.write(row, at, kept, result);
      }
    }
  }
}

/// Tier warp for rows that do not fit its registers: a warp reads its row twice.
template <typename Function>
__global__ void __launch_bounds__(256) warp_stream_kernel(Function function, int64_t steps) {
  wait_for_previous_kernel();
  const LaneGroup group(32);
  const int64_t step = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (step >= steps) {
    return;
  }
  auto row = function.row(step);
  if (!row.exists()) {
    return;
  }
  const PackRange range(row.layout.packs, 0, 1);
  const auto partial = read_part(function, row, range, group);
  write_part(function, row, range, group,
             function.finish(row, function.total(row, group, partial)));
}

/// Tier stream: a block reads its row twice.
template <typename Function>
__global__ void __launch_bounds__(1024) stream_kernel(Function function) {
  wait_for_previous_kernel();
  const BlockGroup group(1);
  auto row = function.row(blockIdx.x);
  const PackRange range(row.layout.packs, 0, 1);
  const auto partial = read_part(function, row, range, group);
  write_part(function, row, range, group,
             function.finish(row, function.total(row, group, partial)));
}

/// Tier stream for few rows: `parts` blocks a row leave what they found in `summaries` [rows,
/// parts], and the next kernel adds that up before it reads the row again.
template <typename Function>
__global__ void __launch_bounds__(1024)
    split_read_kernel(Function function, int parts, typename Function::Summary* summaries) {
  wait_for_previous_kernel();
  const BlockGroup group(1);
  const int part = static_cast<int>(blockIdx.x) % parts;
  auto row = function.row(blockIdx.x / parts);
  const auto partial = read_part(function, row, PackRange(row.layout.packs, part, parts), group);
  const auto total = function.total(row, group, partial);
  if (threadIdx.x == 0) {
    summaries[blockIdx.x] = total;
  }
}

template <typename Function>
__global__ void __launch_bounds__(1024)
    split_write_kernel(Function function, int parts, const typename Function::Summary* summaries) {
  wait_for_previous_kernel();
  const LaneGroup lanes(32);
  // What was read last is still in the cache: the blocks of this kernel come in reverse.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int index = block / parts, part = block % parts;
  auto row = function.row(index);
  auto total = Function::nothing();
  for (int first = 0; first < parts; first += 32) {
    const int mine = first + lanes.rank();
    const auto of_parts = Function::merge(
        lanes, mine < parts ? summaries[index * parts + mine] : Function::nothing());
    // Two in two lanes: the total so far and that of these parts.
    total = Function::merge(lanes, lanes.rank() == 0   ? total
                                   : lanes.rank() == 1 ? of_parts
                                                       : Function::nothing());
  }
  // The rows of a split are few and long: whether a key is visible was found by all parts.
  const BlockGroup group(1);
  write_part(function, row, PackRange(row.layout.packs, part, parts), group,
             function.finish(row, total));
}

}  // namespace warpfuse::cuda
