#include "fused_logprob/fused_logprob_kernel.h"

#include <algorithm>
#include <cfloat>

#include "fused_logprob/logprob_chunk.cuh"
#include "fused_logprob/logprob_row.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/group.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

/// A row in chunks of `pieces` pieces each, whose summaries are kept until all are there.
struct RowCut {
  int64_t all_pieces;
  int64_t pieces;  // of a chunk; of the last one perhaps fewer
  int chunks;
};

/// Summarizes the chunks first, first + step, .. of a row by one warp. Calls found(chunk, summary),
/// the summary in every lane.
template <typename T, bool kEntropy, typename Found>
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

/// The total of a row's chunks, by one warp, in every lane.
template <typename C, bool kEntropy>
__device__ Summary<C, kEntropy> join_chunks(const Summary<C, kEntropy>* of_chunks, int chunks,
                                            C scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto total = Summary<C, kEntropy>::nothing();
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    total.max = larger(total.max, of_chunks[chunk].max);
  }
  total.max = max_of_lanes(total.max);
  const C reference = total.reference(total.max);
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    total.add(of_chunks[chunk].relative_to(reference, scale));
  }
  total.sum = add_lanes(total.sum);
  if constexpr (kEntropy) {
    total.weighted = add_lanes(total.weighted);
  }
  return total;
}

/// Rows of one chunk: a warp each.
template <typename T, bool kEntropy>
__global__ void __launch_bounds__(256)
    warp_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature, RowCut cut) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (index >= arguments.layout.rows) {
    return;
  }
  const int64_t columns = arguments.layout.columns;
  const T* row = static_cast<const T*>(arguments.logits) + row_offset(arguments.layout, index);
  const RowTarget target(arguments.targets, columns, index);
  auto total = Summary<C, kEntropy>::nothing();
  if (target.kind != RowTarget::ignored || arguments.lse != nullptr) {
    Piece<T> piece;
    piece.read(row, columns, true);
    total = summarize<kEntropy>(piece, temperature.log2_scale);
  }
  if (threadIdx.x % 32 == 0) {
    const C logit = target.kind == RowTarget::column ? to_compute(row[target.index]) : C(0);
    write_row<C, kEntropy>(arguments, index, target, logit, total, temperature);
  }
}

#ifndef WARPS
#define WARPS 8
#endif
#ifndef MINB
#define MINB 4
#endif
/// A row by a block, or by a cluster of `blocks`.
template <typename T, bool kEntropy>
__global__ void __launch_bounds__(WARPS * 32, MINB)
    block_kernel(FusedLogprobArguments arguments, Temperature<Compute<T>> temperature, RowCut cut,
                 int blocks) {
  using C = Compute<T>;
  using Total = Summary<C, kEntropy>;
  extern __shared__ uint4 memory[];
  Total* const of_chunks = reinterpret_cast<Total*>(memory);  // [chunks], in the first block
  wait_for_previous_kernel();
  const BlockGroup group(blocks);
  const int64_t index = blockIdx.x / blocks;
  const int64_t columns = arguments.layout.columns;
  const T* row = static_cast<const T*>(arguments.logits) + row_offset(arguments.layout, index);
  const RowTarget target(arguments.targets, columns, index);
  if (target.kind != RowTarget::ignored || arguments.lse != nullptr) {
    const int warps = group.size() / 32;
    Total* const summaries = blocks > 1 ? BlockGroup::remote(of_chunks, 0) : of_chunks;
    bool started = blocks == 1;
    summarize_chunks<T, kEntropy>(row, columns, cut, group.rank() / 32, warps,
                                  temperature.log2_scale, [&](int chunk, const Total& total) {
                                    if (!started) {
                                      BlockGroup::wait();
                                      started = true;
                                    }
                                    if (threadIdx.x % 32 == 0) {
                                      summaries[chunk] = total;
                                    }
                                  });
    if (!started) {
      BlockGroup::wait();
    }
  } else if (blocks > 1) {
    BlockGroup::wait();
  }
  const bool last = group.rank() < 32;
  C logit = 0;
  if (last && target.kind == RowTarget::column) {
    logit = to_compute(row[target.index]);
  }
  if (blocks > 1) {
    BlockGroup::arrive();
    BlockGroup::wait();
  } else {
    __syncthreads();
  }
  if (last) {
    const Total total = join_chunks(of_chunks, cut.chunks, temperature.log2_scale);
    if (threadIdx.x == 0) {
      write_row<C, kEntropy>(arguments, index, target, logit, total, temperature);
    }
  }
}

}  // namespace
}  // namespace warpfuse
