#pragma once

#include "rowwise/cuda/group.cuh"

namespace warpfuse::cuda {

// The tiers: each says where the packs of a row live between their read and their write. Function
// is Forward or Backward.

/// One row, its packs in the registers of the group's lanes: pack i * size + rank in slot i.
template <int kLanePacks, typename Function, typename Group>
__device__ __forceinline__ void row_in_registers(const Function& function, int64_t index,
                                                 const Group& group) {
  auto row = function.row(index);
  typename Function::Cached cached[kLanePacks];
  const int rank = group.rank(), size = group.size();
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.layout.read(rank + i * size)) {
      function.read(row, rank + i * size, cached[i]);
    }
  }
  const auto result = function.reduce(row, group, [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        visit(cached[i]);
      }
    }
  });
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.layout.packs) {
      function.write(row, rank + i * size, cached[i], result);
    }
  }
}

/// Tier warp: `lanes` of a warp share a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256) warp_kernel(Function function, int64_t rows, int lanes) {
  const LaneGroup group(lanes);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes) + threadIdx.x / lanes;
  if (row < rows) {
    row_in_registers<kLanePacks>(function, row, group);
  }
}

/// Tier block: a block has a row in its registers.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(512) block_kernel(Function function) {
  row_in_registers<kLanePacks>(function, blockIdx.x, BlockGroup());
}

/// Tier block: a block has a row in its shared memory. A thread touches its own packs alone.
template <typename Function>
__global__ void __launch_bounds__(1024) shared_kernel(Function function) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* cached = reinterpret_cast<typename Function::Cached*>(memory);
  const BlockGroup group;
  auto row = function.row(blockIdx.x);
  const int packs = row.layout.packs;
  for (int pack = group.rank(); pack < packs; pack += group.size()) {
    if (row.layout.read(pack)) {
      function.read(row, pack, cached[pack]);
    }
  }
  const auto result = function.reduce(row, group, [&](const auto& visit) {
    for (int pack = group.rank(); pack < packs; pack += group.size()) {
      if (row.layout.read(pack)) {
        visit(cached[pack]);
      }
    }
  });
  for (int pack = group.rank(); pack < packs; pack += group.size()) {
    function.write(row, pack, cached[pack], result);
  }
}

/// Tier stream: the row is read twice; the first time for its sums alone.
template <typename Function>
__global__ void __launch_bounds__(1024) stream_kernel(Function function) {
  const BlockGroup group;
  auto row = function.row(blockIdx.x);
  typename Function::Cached cached;
  typename Function::Partial partial{};
  for (int pack = row.layout.first + group.rank(); pack < row.layout.last; pack += group.size()) {
    function.read(row, pack, cached);
    function.add(partial, cached);
  }
  const auto result = function.combine(row, group, partial);
  for (int pack = group.rank(); pack < row.layout.packs; pack += group.size()) {
    if (row.layout.read(pack)) {
      function.read(row, pack, cached);
      function.prepare(cached, result);
    }
    function.write(row, pack, cached, result);
  }
}

}  // namespace warpfuse::cuda
