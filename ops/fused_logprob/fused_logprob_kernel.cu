#include <algorithm>
#include <bit>

#include "fused_logprob/fused_logprob_kernel.h"
#include "fused_logprob/logprob_chunk.cuh"
#include "fused_logprob/logprob_row.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/pdl.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kMaxThreads = 256;   // of a block
constexpr int kMaxChunks = 2048;   // whose summaries fit every GPU's shared memory
constexpr int kLeastChunks = 6;    // of a block that shares its row
constexpr int kMaxWarpChunks = 8;  // of a row that one warp reads

/// A row in chunks, whose summaries are kept until all are there. A function of columns and dtype.
struct RowCut {
  int64_t pieces;  // of a chunk; of the last one perhaps fewer
  int chunks;

  static RowCut of(int64_t columns, int piece_columns) {
    const int64_t all = (columns + piece_columns - 1) / piece_columns;
    const int64_t pieces =
        std::bit_ceil(static_cast<uint64_t>((all + kMaxChunks - 1) / kMaxChunks));
    return {pieces, static_cast<int>((all + pieces - 1) / pieces)};
  }
};

/// Summarizes the chunks first, first + step, .. of a row by one warp. Calls found(chunk, summary),
/// the summary in every lane. kLong: a chunk may have more than one piece,
/// which are read one after the other.
template <typename T, bool kEntropy, bool kLong, typename Found>
__device__ void summarize_chunks(const T* row, int64_t columns, const RowCut& cut, int first,
                                 int step, Compute<T> scale, const Found& found) {
  const auto read = [&](Piece<T>& piece, int64_t index) {
    const int64_t column = index * kPieceColumns<T>;
    piece.read(row + column, columns - column, index == 0);
  };
  if (first >= cut.chunks) {
    return;
  }
  Piece<T> piece;
  if constexpr (kLong) {
    using Total = Summary<Compute<T>, kEntropy>;
    for (int chunk = first; chunk < cut.chunks; chunk += step) {
      const int64_t begin = chunk * cut.pieces;
      Total total = Total::nothing();
      for (int64_t i = begin; i < begin + cut.pieces && i * kPieceColumns<T> < columns; ++i) {
        read(piece, i);
        total = Total::join(total, summarize<kEntropy>(piece, scale), scale);
      }
      found(chunk, total);
    }
  } else {
    read(piece, first);
    for (int chunk = first; chunk < cut.chunks; chunk += step) {
      Piece<T> next;  // on its way while the other is worked on
      if (chunk + step < cut.chunks) {
        read(next, chunk + step);
      }
      found(chunk, summarize<kEntropy>(piece, scale));
      piece = next;
    }
  }
}

/// The total of a row's chunks, by one warp, in every lane.
template <typename C, bool kEntropy>
__device__ Summary<C, kEntropy> join_chunks(const Summary<C, kEntropy>* of_chunks, int chunks,
                                            C scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto total = Summary<C, kEntropy>::nothing();
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    total.max = larger(total.max, of_chunks[chunk].max);
  }
  const Warp lanes;
  total.max = lanes.max(total.max);
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    total.add(of_chunks[chunk], scale);
  }
  total.sum = lanes.sum(total.sum);
  if constexpr (kEntropy) {
    total.weighted = lanes.sum(total.weighted);
  }
  return total;
}

template <typename T>
__device__ const T* logits_of_row(const FusedLogprobArguments& arguments, int64_t index) {
  return static_cast<const T*>(arguments.logits) + row_offset(arguments.layout, index);
}

/// What the kernels know of one row.
template <typename T>
struct Row {
  int64_t index;
  const T* logits;
  RowTarget target;
  bool read;  // else nothing of it is asked that depends on its logits

  __device__ Row(const FusedLogprobArguments& arguments, int64_t index)
      : index(index),
        logits(logits_of_row<T>(arguments, index)),
        target(arguments.targets, arguments.layout.columns, index),
        read(target.kind != RowTarget::ignored || arguments.lse != nullptr) {}

  __device__ Compute<T> target_logit() const {
    return target.kind == RowTarget::column ? to_compute(logits[target.index]) : Compute<T>(0);
  }
};

/// A row by one warp. kOneChunk: there is no next one to read ahead, nor registers for it.
template <typename T, bool kEntropy, bool kOneChunk>
__global__ void __launch_bounds__(kMaxThreads)
    warp_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature, RowCut cut) {
  using Total = Summary<Compute<T>, kEntropy>;
  __shared__ Total memory[kMaxThreads / 32][kMaxWarpChunks];
  wait_for_previous_kernel();
  const unsigned warp = threadIdx.x / 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (index >= arguments.layout.rows) {
    return;
  }
  const Row<T> row(arguments, index);
  const bool writes = threadIdx.x % 32 == 0;
  if (!row.read) {
    if (writes) {
      write_row(arguments, index, row.target, Compute<T>(0), Total::of_ignored(), temperature);
    }
    return;
  }
  summarize_chunks<T, kEntropy, kOneChunk>(row.logits, arguments.layout.columns, cut, 0, 1,
                                           temperature.log2_scale,
                                           [&](int chunk, const Total& total) {
                                             if (writes) {
                                               memory[warp][chunk] = total;
                                             }
                                           });
  __syncwarp();
  const Total total = join_chunks(memory[warp], cut.chunks, temperature.log2_scale);
  if (writes) {
    write_row(arguments, index, row.target, row.target_logit(), total, temperature);
  }
}

/// A row by a block, or by a cluster of `blocks`.
template <typename T, bool kEntropy, bool kLong>
__global__ void __launch_bounds__(kMaxThreads, 4)
    block_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature, RowCut cut,
                 int blocks) {
  using C = Compute<T>;
  using Total = Summary<C, kEntropy>;
  extern __shared__ uint4 memory[];
  Total* const of_chunks = reinterpret_cast<Total*>(memory);  // [chunks], in the first block
  BlockGroup group(blocks);
  if constexpr (sizeof(T) == 2) {  // others have no registers for it
    // What its warps read first, where rows are few: where they are many it takes 1 % longer.
    if (blocks > 1 && should_prefetch()) {
      const int columns = static_cast<int>(blockDim.x / 32) * kPieceColumns<T>;
      const int first = group.block() * columns;
      if (first + columns <= arguments.layout.columns) {
        prefetch_bytes(logits_of_row<T>(arguments, group.index()) + first,
                       columns * static_cast<int>(sizeof(T)));
      }
    }
  }
  wait_for_previous_kernel();
  const Row<T> row(arguments, group.index());
  if (row.read) {
    Total* const summaries = blocks > 1 ? BlockGroup::remote(of_chunks, 0) : of_chunks;
    summarize_chunks<T, kEntropy, kLong>(
        row.logits, arguments.layout.columns, cut, group.rank() / 32, group.size() / 32,
        temperature.log2_scale, [&](int chunk, const Total& total) {
          if (blocks > 1) {
            group.wait_for_start();
          }
          if (threadIdx.x % 32 == 0) {
            summaries[chunk] = total;
          }
        });
  }
  const bool joins = group.rank() < 32;
  const C logit = joins ? row.target_logit() : C(0);  // on its way meanwhile
  if (blocks > 1) {
    group.wait_for_start();
    BlockGroup::arrive();
    BlockGroup::wait();
  } else {
    __syncthreads();
  }
  if (joins) {
    const Total total =
        row.read ? join_chunks(of_chunks, cut.chunks, temperature.log2_scale) : Total::of_ignored();
    if (threadIdx.x == 0) {
      write_row(arguments, row.index, row.target, logit, total, temperature);
    }
  }
}

/// What a cluster may have at most.
int cluster_limit() {
  return std::min(device_limits().rows.cluster_blocks, tuning()->cluster_blocks);
}

/// How many blocks share a row, where there are no more rows than `resident` blocks run at once.
int blocks_of_few_rows(int64_t rows, int chunks, int64_t resident) {
  const int most = std::min(cluster_limit(), chunks / kLeastChunks);
  // Two fill the GPU best; more of them do with half of the blocks that it takes.
  int blocks = most >= 2 && rows * 2 <= resident ? 2 : 1;
  while (blocks > 1 && 2 * blocks <= most && rows * 4 * blocks <= resident) {
    blocks *= 2;
  }
  return blocks;
}

/// And where there are more.
int blocks_of_many_rows(int64_t rows, int chunks, int64_t resident) {
  // Few rounds of blocks end ragged: twice as many blocks, half as long, end more evenly.
  const bool ragged = rows < 3 * resident && chunks >= 2 * kLeastChunks;
  return ragged ? std::min(2, cluster_limit()) : 1;
}

template <typename T, bool kEntropy>
cudaError_t launch_forward(const FusedLogprobArguments& arguments, cudaStream_t stream) {
  const int64_t rows = arguments.layout.rows;
  const auto temperature = make_temperature<Compute<T>>(arguments.temperature);
  const RowCut cut = RowCut::of(arguments.layout.columns, kPieceColumns<T>);
  constexpr int64_t kRowsOfBlock = kMaxThreads / 32;
  LaunchShape shape{Tier::warp, 0, (rows + kRowsOfBlock - 1) / kRowsOfBlock, kMaxThreads};
  if (cut.chunks == 1) {
    return launch_kernel(warp_kernel<T, kEntropy, true>, shape, stream, arguments, temperature,
                         cut);
  }
  const auto resident = [&](auto kernel) {
    return resident_clusters(reinterpret_cast<const void*>(kernel), shape);
  };
  const auto warps = warp_kernel<T, kEntropy, false>;
  if (cut.chunks <= kMaxWarpChunks && shape.blocks >= 2 * resident(warps)) {
    return launch_kernel(warps, shape, stream, arguments, temperature, cut);
  }
  const auto kernel =
      cut.pieces > 1 ? block_kernel<T, kEntropy, true> : block_kernel<T, kEntropy, false>;
  shape.shared_bytes = cut.chunks * sizeof(Summary<Compute<T>, kEntropy>);
  shape.threads = 32 * std::min(cut.chunks, kMaxThreads / 32);
  if (rows <= resident(kernel)) {
    shape.cluster = blocks_of_few_rows(rows, cut.chunks, resident(kernel));
  } else {
    shape.threads = 32 * std::min(cut.chunks, kMaxThreads / 64);
    shape.cluster = blocks_of_many_rows(rows, cut.chunks, resident(kernel));
  }
  shape.tier = shape.cluster > 1 ? Tier::cluster : Tier::block;
  shape.blocks = rows * shape.cluster;
  return launch_kernel(kernel, shape, stream, arguments, temperature, cut, shape.cluster);
}

}  // namespace

cudaError_t fused_logprob_cuda(const FusedLogprobArguments& arguments, cudaStream_t stream) {
  return dispatch(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    return arguments.entropy != nullptr ? launch_forward<T, true>(arguments, stream)
                                        : launch_forward<T, false>(arguments, stream);
  });
}

}  // namespace warpfuse
