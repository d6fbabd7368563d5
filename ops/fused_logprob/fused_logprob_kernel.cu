#include <algorithm>
#include <bit>

#include "fused_logprob/fused_logprob.h"
#include "fused_logprob/logprob_tile.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

// --- launch parameters, measured on an H200 ---------------------------------------------------

constexpr int kMaxThreads = 256;      // per block
constexpr int kMinBlocks = 4;         // per multiprocessor, for the register allocation
constexpr int kMaxPartials = 2048;    // per row: they fit the shared memory of every GPU
constexpr int kMaxWarpPartials = 8;   // of a row that one warp reduces
constexpr int kMinBlockPartials = 6;  // for each block of a cluster
constexpr int kWarpWaves = 2;         // of blocks, from which on a warp per row is faster
constexpr int kManyRowThreads = 128;  // per block, where not all rows run at once
constexpr int kRaggedWaves = 3;       // of blocks, below which the last wave's idle blocks count

/// A row's tiles, reduced to one partial per `partial_tiles` of them. Depends on columns and dtype
/// alone.
struct RowSplit {
  int64_t partial_tiles;  // the last partial may have fewer
  int partials;

  RowSplit(int64_t columns, int tile_columns) {
    const int64_t tiles = (columns + tile_columns - 1) / tile_columns;
    partial_tiles = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>((tiles + kMaxPartials - 1) / kMaxPartials)));
    partials = static_cast<int>((tiles + partial_tiles - 1) / partial_tiles);
  }
};

// --- device -----------------------------------------------------------------------------------

/// Reduces partials first, first + step, .. of a row by one warp and calls store(index, partial) in
/// every lane. kPrefetch: partials are single tiles, and the next one is loaded meanwhile.
template <typename T, bool kEntropy, bool kPrefetch, typename Store>
__device__ void reduce_partials(const T* row, int64_t columns, const RowSplit& split, int first,
                                int step, Compute<T> scale, const Store& store) {
  const auto load = [&](WarpTile<T>& tile, int64_t index) {
    const int64_t column = index * kWarpTileColumns<T>;
    tile.load(row + column, columns - column, index == 0);
  };
  if (first >= split.partials) {
    return;
  }
  WarpTile<T> tile;
  if constexpr (kPrefetch) {
    load(tile, first);
    for (int index = first; index < split.partials; index += step) {
      WarpTile<T> next;
      if (index + step < split.partials) {
        load(next, index + step);
      }
      store(index, reduce_tile<kEntropy>(tile, scale));
      tile = next;
    }
  } else {
    using Partial = LogprobPartial<Compute<T>, kEntropy>;
    for (int index = first; index < split.partials; index += step) {
      const int64_t begin = index * split.partial_tiles;
      Partial partial = Partial::empty();
      for (int64_t i = begin; i < begin + split.partial_tiles && i * kWarpTileColumns<T> < columns;
           ++i) {
        load(tile, i);
        partial = Partial::merge(partial, reduce_tile<kEntropy>(tile, scale), scale);
      }
      store(index, partial);
    }
  }
}

/// Merges a row's partials by one warp; every lane gets the total.
template <typename C, bool kEntropy>
__device__ LogprobPartial<C, kEntropy> merge_partials(const LogprobPartial<C, kEntropy>* partials,
                                                      int count, C scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto total = LogprobPartial<C, kEntropy>::empty();
  for (int i = lane; i < count; i += 32) {
    total.max = larger(total.max, partials[i].max);
  }
  const Warp warp;
  total.max = warp.max(total.max);
  for (int i = lane; i < count; i += 32) {
    total.add(partials[i], scale);
  }
  total.sum = warp.sum(total.sum);
  if constexpr (kEntropy) {
    total.weighted = warp.sum(total.weighted);
  }
  return total;
}

template <typename T>
__device__ const T* row_logits(const FusedLogprobArguments& arguments, int64_t index) {
  return static_cast<const T*>(arguments.logits) + arguments.layout.offset(index);
}

template <typename T>
struct Row {
  int64_t index;
  const T* logits;
  RowTarget target;
  bool is_read;  // false: no result depends on its logits

  __device__ Row(const FusedLogprobArguments& arguments, int64_t index)
      : index(index),
        logits(row_logits<T>(arguments, index)),
        target(arguments.targets, arguments.layout.columns, index),
        is_read(target.kind != RowTarget::ignored || arguments.lse != nullptr) {}

  __device__ Compute<T> target_logit() const {
    return target.kind == RowTarget::column ? to_compute(logits[target.index]) : Compute<T>(0);
  }
};

/// A warp per row.
template <typename T, bool kEntropy, bool kPrefetch>
__global__ void __launch_bounds__(kMaxThreads)
    logprob_warp_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature,
                        RowSplit split) {
  using Partial = LogprobPartial<Compute<T>, kEntropy>;
  __shared__ Partial partials[kMaxThreads / 32][kMaxWarpPartials];
  wait_for_previous_kernel();
  const unsigned warp = threadIdx.x / 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (index >= arguments.layout.rows) {
    return;
  }
  const Row<T> row(arguments, index);
  const bool is_writer = threadIdx.x % 32 == 0;
  if (!row.is_read) {
    if (is_writer) {
      write_row(arguments, index, row.target, Compute<T>(0), Partial::ignored(), temperature);
    }
    return;
  }
  reduce_partials<T, kEntropy, kPrefetch>(row.logits, arguments.layout.columns, split, 0, 1,
                                          temperature.log2_scale,
                                          [&](int i, const Partial& partial) {
                                            if (is_writer) {
                                              partials[warp][i] = partial;
                                            }
                                          });
  __syncwarp();
  const Partial total = merge_partials(partials[warp], split.partials, temperature.log2_scale);
  if (is_writer) {
    write_row(arguments, index, row.target, row.target_logit(), total, temperature);
  }
}

/// A block per row, or a cluster of `blocks`.
template <typename T, bool kEntropy, bool kPrefetch>
__global__ void __launch_bounds__(kMaxThreads, kMinBlocks)
    logprob_block_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature,
                         RowSplit split, int blocks) {
  using C = Compute<T>;
  using Partial = LogprobPartial<C, kEntropy>;
  extern __shared__ uint4 memory[];
  Partial* const partials = reinterpret_cast<Partial*>(memory);  // [partials], in the first block
  BlockGroup group(blocks, /*totals=*/false);
  if constexpr (sizeof(T) == 2) {  // other types have no registers left for it
    // Prefetches the first tiles of the block's warps. Without a cluster rows are many, and it
    // costs 1 %.
    if (blocks > 1 && should_prefetch()) {
      const int columns = static_cast<int>(blockDim.x / 32) * kWarpTileColumns<T>;
      const int first = group.block() * columns;
      if (first + columns <= arguments.layout.columns) {
        prefetch_bytes(row_logits<T>(arguments, group.index()) + first,
                       columns * static_cast<int>(sizeof(T)));
      }
    }
  }
  wait_for_previous_kernel();
  const Row<T> row(arguments, group.index());
  if (row.is_read) {
    Partial* const row_partials = blocks > 1 ? BlockGroup::remote(partials, 0) : partials;
    reduce_partials<T, kEntropy, kPrefetch>(
        row.logits, arguments.layout.columns, split, group.rank() / 32, group.size() / 32,
        temperature.log2_scale, [&](int i, const Partial& partial) {
          if (blocks > 1) {
            group.wait_for_start();
          }
          if (threadIdx.x % 32 == 0) {
            row_partials[i] = partial;
          }
        });
  }
  const bool merges = group.rank() < 32;
  const C logit = merges ? row.target_logit() : C(0);  // loaded before the barrier
  if (blocks > 1) {
    group.wait_for_start();
    BlockGroup::arrive();
    BlockGroup::wait();
  } else {
    __syncthreads();
  }
  if (merges) {
    const Partial total = row.is_read
                              ? merge_partials(partials, split.partials, temperature.log2_scale)
                              : Partial::ignored();
    if (threadIdx.x == 0) {
      write_row(arguments, row.index, row.target, logit, total, temperature);
    }
  }
}

// --- launch -----------------------------------------------------------------------------------

int max_cluster_blocks() {
  return std::min(device_limits().rows.cluster_blocks, tuning().cluster_blocks);
}

/// Blocks per row where `active` blocks run at once and rows are no more than that.
int blocks_per_row(int64_t rows, int partials, int64_t active) {
  const int max_blocks = std::min(max_cluster_blocks(), partials / kMinBlockPartials);
  // Two blocks per row pay as soon as all rows fit, more of them only on half of the GPU.
  int blocks = max_blocks >= 2 && 2 * rows <= active ? 2 : 1;
  while (blocks > 1 && 2 * blocks <= max_blocks && rows * 4 * blocks <= active) {
    blocks *= 2;
  }
  return blocks;
}

/// Blocks per row where rows are more than that. In few waves, twice as many blocks of half the
/// length leave less of the GPU idle in the last one.
int blocks_per_row_in_waves(int64_t rows, int partials, int64_t active) {
  const bool is_ragged = rows < kRaggedWaves * active && partials >= 2 * kMinBlockPartials;
  return is_ragged ? std::min(2, max_cluster_blocks()) : 1;
}

template <typename T, bool kEntropy>
cudaError_t launch_forward(const FusedLogprobArguments& arguments, cudaStream_t stream) {
  const int64_t rows = arguments.layout.rows;
  const Temperature<Compute<T>> temperature(arguments.temperature);
  const RowSplit split(arguments.layout.columns, kWarpTileColumns<T>);
  constexpr int64_t kBlockRows = kMaxThreads / 32;
  LaunchShape shape{Tier::warp, 0, (rows + kBlockRows - 1) / kBlockRows, kMaxThreads};
  if (split.partials == 1) {
    return launch_kernel(logprob_warp_kernel<T, kEntropy, false>, shape, stream, arguments,
                         temperature, split);
  }
  const auto active_blocks = [&](auto kernel) { return max_active_clusters(kernel, shape); };
  const auto warp_kernel = logprob_warp_kernel<T, kEntropy, true>;
  if (split.partials <= kMaxWarpPartials &&
      shape.blocks >= kWarpWaves * active_blocks(warp_kernel)) {
    return launch_kernel(warp_kernel, shape, stream, arguments, temperature, split);
  }
  const auto kernel = split.partial_tiles == 1 ? logprob_block_kernel<T, kEntropy, true>
                                               : logprob_block_kernel<T, kEntropy, false>;
  shape.shared_bytes = split.partials * sizeof(LogprobPartial<Compute<T>, kEntropy>);
  shape.threads = 32 * std::min(split.partials, kMaxThreads / 32);
  if (const int64_t active = active_blocks(kernel); rows <= active) {
    shape.cluster = blocks_per_row(rows, split.partials, active);
  } else {
    shape.threads = 32 * std::min(split.partials, kManyRowThreads / 32);
    shape.cluster = blocks_per_row_in_waves(rows, split.partials, active_blocks(kernel));
  }
  shape.tier = shape.cluster > 1 ? Tier::cluster : Tier::block;
  shape.blocks = rows * shape.cluster;
  return launch_kernel(kernel, shape, stream, arguments, temperature, split, shape.cluster);
}

}  // namespace

cudaError_t launch_cuda(const FusedLogprobArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.entropy != nullptr ? launch_forward<T, true>(arguments, stream)
                                        : launch_forward<T, false>(arguments, stream);
  });
}

}  // namespace warpfuse
