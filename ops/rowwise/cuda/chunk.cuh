#pragma once

#include "rowwise/cuda/chunk_gaps.cuh"
#include "rowwise/cuda/chunk_row.cuh"

namespace warpfuse::cuda {

// Tier chunk: short rows that are not aligned to packs. Packs and edges of each row would leave
// most lanes idle, so a warp copies a chunk of consecutive rows, which is contiguous, to shared
// memory in packs. A few lanes share a row there, by elements, and the results leave in packs too.

inline constexpr int kMaxChunkWarps = 4;  // of a block

/// Blocks of that size per multiprocessor, by measurements on an H200. They leave 64 to 96
/// registers and at most 48 bytes of spills.
template <RowFunction F>
constexpr int kChunkBlocks = [] {
  constexpr bool kHalf = sizeof(typename F::T) == 2, kRules = kHasRules<F>;
  if (F::kInputs == 1) {
    if (kDrops<F>) {
      return 7;
    }
    return kHalf ? (kRules ? 7 : 8) : (kRules ? 6 : 5);
  }
  if (kDrops<F> && kRules) {
    return 5;
  }
  return (kHalf ? 6 : 5) + (kDrops<F> ? 1 : 0);
}();

/// kSlots: elements of a lane. kGap: each row of the one input has a gap behind it.
template <int kSlots, bool kGap, RowFunction F>
__global__ void __launch_bounds__(32 * kMaxChunkWarps, kChunkBlocks<F> - (kGap ? 1 : 0))
    chunk_kernel(F function, int64_t rows, ChunkShape shape, ChunkMaskShape mask_shape,
                 ChunkGap gap) {
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Mbarrier barriers[kMaxChunkWarps];
  using T = typename F::T;
  const int columns = static_cast<int>(function.columns);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int64_t first = (int64_t{blockIdx.x} * warps + warp) * shape.rows;
  wait_for_previous_kernel();
  if (first >= rows) {
    return;
  }
  const int chunk_rows = static_cast<int>(min(rows - first, int64_t{shape.rows}));
  // Each lane has the visible keys of one of 32 rows: to find them takes as long as some elements.
  int visible_begin = 0, visible_end = 0;
  const auto find_visible = [&](int begin) {
    if constexpr (kFindsVisible<F>) {
      const auto visible =
          function.key_mask().interval(static_cast<int>(first) + min(begin + lane, chunk_rows - 1));
      visible_begin = static_cast<int>(visible.begin);
      visible_end = static_cast<int>(visible.end);
    }
  };
  const auto row_of = [&](int index, int in_chunk) {
    if constexpr (kFindsVisible<F>) {
      return function.element_row(first + in_chunk, {__shfl_sync(~0u, visible_begin, index % 32),
                                                     __shfl_sync(~0u, visible_end, index % 32)});
    } else {
      return function.element_row(first + in_chunk);
    }
  };
  const auto chunk = row_of(0, 0);
  // Elements from a 16-byte boundary to the chunk in shared memory, as in global memory; but rows
  // of whole words begin at one.
  int shift = pack_shift(kGap ? chunk.out : chunk.rows[0]);
  if (columns % kWord<T> == 0) {
    shift -= shift % kWord<T>;
  }
  // Two inputs arrive earlier by the lanes, where these have instructions left for it.
  constexpr bool kByLanes = F::kInputs > 1 && (sizeof(T) == 4 || (kKeepsWords<F> && !kHasRules<F>));
  const ChunkCopies<kByLanes> copies(barriers[warp], lane);
  if (kRulesAlone<F> && shape.apart) {
    find_visible(0);
  }
  T* staged[F::kInputs];
  for_inputs<F::kInputs>([&](auto i) {
    staged[i] = reinterpret_cast<T*>(memory + (warp * F::kInputs + i) * shape.packs) + shift;
    if constexpr (kGap) {
      load_rows(chunk.rows[i] + first * gap.elements, staged[i], chunk_rows, columns, gap);
    } else if (kRulesAlone<F> && shape.apart) {
      copies.load_pieces(chunk.rows[i], staged[i], chunk_rows * columns, chunk_rows,
                         lane * columns + visible_begin, lane * columns + visible_end);
    } else {
      copies.load(chunk.rows[i], staged[i], chunk_rows * columns);
    }
  });
  uint4* const behind_inputs = memory + warps * F::kInputs * shape.packs;
  const auto mask = [&] {
    if constexpr (kHasMaskTensor<F>) {
      return ChunkMask(function.key_mask(), mask_shape, copies,
                       reinterpret_cast<unsigned char*>(behind_inputs) + warp * mask_shape.bytes,
                       static_cast<int>(first), chunk_rows, lane);
    } else {
      return nullptr;
    }
  }();
  ChunkKeepBits keep_bits(reinterpret_cast<unsigned*>(behind_inputs) + warp * shape.keep_words);
  if constexpr (kDrops<F>) {
    keep_bits.draw(function, chunk, chunk_rows * columns, lane);
  }
  copies.wait();
  const int pitch = kGap ? gap.pitch : columns;
  const auto reduce_rows = [&]<int kRowSlots>(std::integral_constant<int, kRowSlots>,
                                              int lanes_log2) {
    const ChunkLanes group(1 << lanes_log2);
    for (int begin = 0; begin < chunk_rows; begin += 32 >> lanes_log2) {
      const int index = begin + (lane >> lanes_log2), in_chunk = min(index, chunk_rows - 1);
      if (kFindsVisible<F> && begin % 32 == 0 && !shape.apart) {
        find_visible(begin);
      }
      auto row = row_of(index, in_chunk);
      const bool has_row = index < chunk_rows;  // other lanes stay: their warp reduces together
      if constexpr (kDrops<F>) {
        if (!has_row) {
          row.interval.index = -1;  // no row whose statistics to note
        }
      }
      for_inputs<F::kInputs>([&](auto i) { row.rows[i] = staged[i] + in_chunk * pitch; });
      row.out = staged[0] + in_chunk * pitch;
      const ChunkSlots slots(row.out, columns, group.rank(), shape, has_row);
      uint64_t kept = 0;
      if constexpr (kDrops<F>) {
        kept = keep_bits.from(in_chunk * columns + slots.first);
      }
      const unsigned char* mask_row = nullptr;
      if constexpr (kHasMaskTensor<F>) {
        mask_row = mask.row(in_chunk);
      }
      row_by_elements<kRowSlots>(function, row, group, shape, slots, kept, mask, mask_row);
      __syncwarp();  // a word of the next rows may hold an element of these
    }
  };
  // To skip the other slots would take longer than the few elements of such rows do.
  constexpr int kFewSlots = 8;
  if (shape.lanes == 1 && shape.slots <= kFewSlots) {
    reduce_rows(std::integral_constant<int, kFewSlots>(), 0);
  } else {
    reduce_rows(std::integral_constant<int, kSlots>(), 31 - __clz(shape.lanes));
  }
  if constexpr (kGap) {
    store_rows(staged[0], chunk.out, chunk_rows, columns, gap, copies);
  } else {
    copies.store(staged[0], chunk.out, chunk_rows * columns);
  }
}

}  // namespace warpfuse::cuda
