#pragma once

#include "rowwise/cuda/early.cuh"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// The tiers say where the packs of a row live between their read and their write; here, in
// registers. Function is Forward or Backward. A row has at most one edge a lane: a plan has lanes
// enough.

/// What is drawn for the packs of a lane: all of it while they are on their way, where registers
/// are free then, else each where it is wanted.
template <int kLanePacks, typename Function>
class LaneDraws {
 public:
  using Drawn = typename Function::Drawn;

  __device__ __forceinline__ LaneDraws(const Function& function, const typename Function::Row& row,
                                       int rank, int size)
      : function_(function), row_(row), rank_(rank), size_(size) {
    if constexpr (Function::kDrawsEarly) {  // past the row's end too: without branches they overlap
      function.template draw<true>(row, rank, size, drawn_);
    }
  }

  __device__ __forceinline__ Drawn of(int i) const {
    if constexpr (Function::kDrawsEarly) {
      return drawn_[i];
    } else {
      Drawn drawn[1];
      function_.draw(row_, rank_ + i * size_, 0, drawn);
      return drawn[0];
    }
  }

 private:
  const Function& function_;
  const typename Function::Row& row_;
  int rank_, size_;
  Drawn drawn_[Function::kDrawsEarly ? kLanePacks : 1];
};

/// A row that is kept in the registers of the group's lanes, pack i * size + rank in slot i.
/// between() is called after the reduction, before the first write.
template <int kLanePacks, typename Function, typename Group, typename Between>
__device__ __forceinline__ void reduce_and_write(const Function& function,
                                                 const typename Function::Row& row, Group& group,
                                                 typename Function::Kept (&kept)[kLanePacks],
                                                 const LaneDraws<kLanePacks, Function>& draws,
                                                 typename Function::Edge& edge,
                                                 const Between& between) {
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
  between();
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (rank + i * size < row.layout.packs) {
      function.write(row, rank + i * size, kept[i], result, draws.of(i));
    }
  }
  if (rank < row.layout.edges) {
    function.write_edge(row, rank, edge, result);
  }
}

/// One row by way of registers. kAhead: the kernel before this one may still run; meanwhile it
/// draws.
template <int kLanePacks, bool kAhead = false, typename Function, typename Group>
__device__ __forceinline__ void row_in_registers(const Function& function,
                                                 typename Function::Row& row, Group& group) {
  typename Function::Bits bits[kLanePacks];
  typename Function::Kept kept[kLanePacks];
  typename Function::Edge edge = Function::no_edge();
  const int rank = group.rank(), size = group.size();
  const auto fetch = [&] {
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        function.fetch(row, rank + i * size, bits[i]);
      }
    }
  };
  if constexpr (!kAhead) {
    fetch();
  }
  const LaneDraws<kLanePacks, Function> draws(function, row, rank, size);
  if constexpr (kAhead) {
    wait_for_previous_kernel();
    function.note_used(row);
    fetch();
  }
  if (rank < row.layout.edges) {
    edge = function.edge(row, rank);
  }
#pragma unroll
  for (int i = 0; i < kLanePacks; ++i) {
    if (row.layout.read(rank + i * size)) {
      function.keep(row, rank + i * size, bits[i], kept[i], draws.of(i));
    }
  }
  reduce_and_write(function, row, group, kept, draws, edge, [] {});
}

/// Tier warp: `lanes` of a warp share a row.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(256)
    warp_kernel(Function function, int64_t steps, int lanes, int lanes_log2) {
  LaneGroup group(lanes);
  const int64_t step =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x >> lanes_log2) + (threadIdx.x >> lanes_log2);
  auto row = first_row(function, min(step, steps - 1), [&](const auto& first) {
    prefetch_rows(function, first, min(steps - step, int64_t{blockDim.x >> lanes_log2}));
  });
  if (step >= steps) {
    row.layout.clear();  // the lanes stay: their warp reduces together
  }
  row_in_registers<kLanePacks>(function, row, group);
}

/// Threads of a block at most, and such blocks a multiprocessor at least, which bounds the
/// registers: 64 with 4 packs a lane, 85 with 8 where values have the size of their bits, else 128.
template <int kLanePacks, typename Function>
struct BlockBounds {
  static constexpr bool kFew = kLanePacks <= 4;
  static constexpr bool kSmall =
      sizeof(typename Function::Kept) == 16 && sizeof(typename Function::Bits) == 16;
  static constexpr int kThreads = kFew ? 1024 : 256;
  static constexpr int kBlocks = kFew ? 0 : kSmall ? 3 : 2;  // 0: as the compiler sees fit
};

/// Tiers block and cluster: the blocks of a row have it in their registers. kAhead: they draw
/// before the kernel before this one has ended.
template <int kLanePacks, typename Function, bool kAhead = false>
__global__ void __launch_bounds__(BlockBounds<kLanePacks, Function>::kThreads,
                                  BlockBounds<kLanePacks, Function>::kBlocks)
    block_kernel(Function function, int blocks) {
  if constexpr (kAhead) {
    BlockGroup group(blocks);
    auto row = function.row_ahead(group.index());
    prefetch_row(function, row, group);
    row_in_registers<kLanePacks, true>(function, row, group);
  } else {
    BlockGroup group(blocks);
    auto row = first_row(function, group.index(), [&](const auto& first) {
      if constexpr (BlockBounds<kLanePacks, Function>::kFew) {  // else 8 % slower, measured
        prefetch_row(function, first, group);
      }
    });
    row_in_registers<kLanePacks>(function, row, group);
  }
}

}  // namespace warpfuse::cuda
