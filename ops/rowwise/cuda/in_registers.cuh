#pragma once

#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/memory.cuh"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse::cuda {

// The tiers say where the packs of a row live between their read and their write; here, in
// registers. Function is Forward or Backward. A row has at most one edge a lane: a plan has lanes
// enough.

/// What is drawn for the packs of a lane: all of it while they are on their way, where registers
/// are free then, else each where it is wanted.
template <int kLanePacks, typename Function>
class LaneKeepMasks {
 public:
  using KeepMask = typename Function::KeepMask;

  __device__ __forceinline__ LaneKeepMasks(const Function& function,
                                           const typename Function::Row& row, int rank, int size)
      : function_(function), row_(row), rank_(rank), size_(size) {
    if constexpr (Function::kDrawsEarly) {  // past the row's end too: without branches they overlap
      function.template draw<true>(row, rank, size, drawn_);
    }
  }

  __device__ __forceinline__ KeepMask of(int i) const {
    if constexpr (Function::kDrawsEarly) {
      return drawn_[i];
    } else {
      KeepMask drawn[1];
      function_.draw(row_, rank_ + i * size_, 0, drawn);
      return drawn[0];
    }
  }

 private:
  const Function& function_;
  const typename Function::Row& row_;
  int rank_, size_;
  KeepMask drawn_[Function::kDrawsEarly ? kLanePacks : 1];
};

/// A row that is kept in the registers of the group's lanes, pack i * size + rank in slot i.
/// between() is called after the reduction, before the first write.
template <int kLanePacks, typename Function, typename Group, typename Between>
__device__ __forceinline__ void reduce_and_write(const Function& function,
                                                 const typename Function::Row& row, Group& group,
                                                 typename Function::Fragment (&kept)[kLanePacks],
                                                 const LaneKeepMasks<kLanePacks, Function>& draws,
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

/// One row by way of registers. kDrawBeforeWait: the kernel before this one may still run;
/// meanwhile it draws.
template <int kLanePacks, bool kDrawBeforeWait = false, typename Function, typename Group>
__device__ __forceinline__ void row_in_registers(const Function& function,
                                                 typename Function::Row& row, Group& group) {
  typename Function::RawPack bits[kLanePacks];
  typename Function::Fragment kept[kLanePacks];
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
  if constexpr (!kDrawBeforeWait) {
    fetch();
  }
  const LaneKeepMasks<kLanePacks, Function> draws(function, row, rank, size);
  if constexpr (kDrawBeforeWait) {
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
      sizeof(typename Function::Fragment) == 16 && sizeof(typename Function::RawPack) == 16;
  static constexpr int kThreads = kFew ? 1024 : 256;
  static constexpr int kBlocks = kFew ? 0 : kSmall ? 3 : 2;  // 0: as the compiler sees fit
};

/// Tiers block and cluster: the blocks of a row have it in their registers. kDrawBeforeWait: they
/// draw before the kernel before this one has ended.
template <int kLanePacks, typename Function, bool kDrawBeforeWait = false>
__global__ void __launch_bounds__(BlockBounds<kLanePacks, Function>::kThreads,
                                  BlockBounds<kLanePacks, Function>::kBlocks)
    block_kernel(Function function, int blocks) {
  if constexpr (kDrawBeforeWait) {
    BlockGroup group(blocks);
    auto row = function.row_before_wait(group.index());
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

/// Tiers block and cluster, for blocks that stay for many rows: while a row is in their registers,
/// the next one is copied to their shared memory, each thread's packs by itself.
template <int kLanePacks, typename Function>
__global__ void __launch_bounds__(kLanePacks * sizeof(typename Function::Fragment) <= 128 ? 1024
                                                                                          : 512)
    persistent_kernel(Function function, int64_t steps, int blocks) {
  extern __shared__ uint4 memory[];
  BlockGroup group(blocks);
  if constexpr (!Function::kRowReads) {
    prefetch_row(function, function.row(group.index()), group);
  }
  wait_for_previous_kernel();
  const int rank = group.rank(), size = group.size();
  const Staging staging(memory, kLanePacks);
  // Where a block with a row of half precision fills a multiprocessor, its exponentials take longer
  // than the next row does to come: reads that begin with the writes are spread better, by 5 %.
  constexpr bool kLate = kLanePacks * sizeof(typename Function::Fragment) > 128 &&
                         sizeof(typename Function::Fragment) > sizeof(typename Function::RawPack);
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
    visible = Function::visible_flag(row);
  };
  int64_t step = group.index();
  start(step);
  for (; step < steps; step += stride) {
    auto row = function.row(step);
    Function::merge_visible(row, visible);
    typename Function::RawPack bits[kLanePacks];
    typename Function::Fragment kept[kLanePacks];
    auto kept_edge = edge;
    const LaneKeepMasks<kLanePacks, Function> draws(function, row, rank, size);
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      bits[i] =
          Function::staged(staging, i);  // empty slots too: all reads are on their way at once
    }
#pragma unroll
    for (int i = 0; i < kLanePacks; ++i) {
      if (row.layout.read(rank + i * size)) {
        function.keep(row, rank + i * size, bits[i], kept[i], draws.of(i));
      }
    }
    const auto start_next = [&] {
      if (step + stride < steps) {
        start(step + stride);
      }
    };
    if constexpr (kLate) {
      reduce_and_write(function, row, group, kept, draws, kept_edge, start_next);
    } else {
      start_next();
      reduce_and_write(function, row, group, kept, draws, kept_edge, [] {});
    }
  }
}

}  // namespace warpfuse::cuda
