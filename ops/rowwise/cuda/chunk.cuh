#pragma once

#include <algorithm>

#include "common/dropout.h"
#include "rowwise/cuda/chunk_copy.cuh"
#include "rowwise/cuda/chunk_mask.cuh"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// Tier chunk: short rows that are not aligned to packs. Packs and edges of each row would leave
// most lanes idle, so a warp copies a chunk of consecutive rows, which is contiguous, to shared
// memory in packs. A few lanes share a row there, by elements, and the results leave in packs too.

/// Which elements of a chunk dropout keeps, a bit per element in shared memory.
class ChunkKeepBits {
 public:
  /// For `elements` elements, and what is loaded behind the last one.
  __host__ __device__ static constexpr int words(int elements) {
    return (elements + kDropoutBlock) / 32 + 3;
  }

  __device__ explicit ChunkKeepBits(unsigned* words) : words_(words) {}

  /// By a warp. row: the chunk's first one.
  template <RowFunction F>
  __device__ void draw(const F& function, const typename F::Row& row, int elements, int lane) {
    const auto first = static_cast<uint64_t>(row.interval.first);
    skipped_ = static_cast<int>(first % kDropoutBlock);
    const int blocks = (skipped_ + elements + kDropoutBlock - 1) / kDropoutBlock;
    auto* const bytes = reinterpret_cast<unsigned char*>(words_);
    for (int i = lane; i < blocks; i += 32) {
      bytes[i] = static_cast<unsigned char>(
          kept_of_block(function.dropout().rule, row.interval.rng, first / kDropoutBlock + i));
    }
  }

  /// Those of 32 elements.
  __device__ unsigned from(int element) const {
    const int bit = skipped_ + element;
    return __funnelshift_r(words_[bit / 32], words_[bit / 32 + 1], bit % 32);
  }

 private:
  unsigned* words_;
  int skipped_ = 0;  // bits in front of the first element
};

/// Reduces and writes a row: lane j of the group has `slots` elements, from slots * j on. kept: a
/// bit for each of this lane's. mask_row: its row in `mask`, a ChunkMask where there is a tensor.
template <int kSlots, RowFunction F, typename Mask>
__device__ __forceinline__ void row_by_elements(const F& function, typename F::Row& row,
                                                const LaneGroup& group, int slots, unsigned kept,
                                                const Mask& mask, const unsigned char* mask_row) {
  typename F::Edge elements[kSlots];
  const int first = group.rank() * slots;
  __builtin_assume(first >= 0);
  const int count = min(slots, row.packed.edges - first);
  int begin = 0, end = count;
  if constexpr (kHasRules<F>) {
    const auto interval = visible_interval(function, row);
    begin = interval.begin > first ? static_cast<int>(interval.begin) - first : 0;
    end = min(count, static_cast<int>(interval.end) - first);
  }
  bool adds = false;
  unsigned visible = ~0u;  // a bit for each slot
  if constexpr (kHasMaskTensor<F>) {
    adds = !function.key_mask().is_boolean();
    visible = begin < end ? ~0u >> (32 - end) & ~0u << begin : 0u;
    if (!adds) {
      visible &= mask.template visible<kSlots>(mask_row, first, slots);
    }
  }
  // With a mask tensor, hidden keys are outside; a test of a bit is one instruction.
  const auto inside = [&](int i) {
    return kHasMaskTensor<F> ? (visible >> i & 1) != 0 : i >= begin && i < end;
  };
  const auto keep_mask = [&](int i) {
    typename F::KeepMask mask{};
    if constexpr (kDrops<F>) {
      mask.set(0, (kept >> i & 1) != 0);
    }
    return mask;
  };
  // Slots are skipped by fours, which takes a branch for each four.
  const auto for_fours = [&](const auto& visit) {
#pragma unroll
    for (int i = 0; i < kSlots; i += 4) {
      if (i < slots) {
        visit(i);
      }
    }
  };
  const auto for_slots = [&](const auto& visit) {
    for_fours([&](int i) {
#pragma unroll
      for (int j = i; j < i + 4; ++j) {
        visit(j);
      }
    });
  };
  // Elements outside are loaded too: under its condition each load would be waited for.
  for_fours([&](int i) {
    RawElement<typename F::T, F::kInputs> raws[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      for_inputs<F::kInputs>([&](auto k) {
        raws[j].inputs[k] = to_compute(load_shared(row.rows[k] + first + i + j));
      });
    }
    if constexpr (kHasMaskTensor<F>) {
      if (adds) {
        Compute<typename F::T> added[4];
        mask.load(mask_row, first + i, added);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          raws[j].mask.added = added[j];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      elements[i + j] =
          function.to_edge(row, first + i + j, inside(i + j), raws[j], keep_mask(i + j));
    }
  });
  const auto result = function.reduce(
      row, group, [&](auto, const auto& visit) { for_slots([&](int i) { visit(elements[i]); }); });
  __syncwarp();  // the next row may have been loaded too
  auto to_write = result;
  if constexpr (kHasMaskTensor<F>) {
    to_write.check_hidden = false;  // what the mask hides is outside
  }
  for_slots([&](int i) {
    if (i < count) {
      function.write(row, first + i, inside(i), elements[i], to_write, keep_mask(i), kReduced);
    }
  });
}

/// The sizes of a launch, which are the same for all rows.
struct ChunkShape {
  int rows;        // of a chunk
  int lanes;       // that share a row
  int slots;       // elements of a lane
  int packs;       // in shared memory for each input of a chunk, and what is loaded behind it
  int behind;      // elements that are loaded behind a chunk
  int keep_words;  // in shared memory for ChunkKeepBits

  /// For `lanes` lanes of up to `most_slots` elements, and chunks of `bytes` or more, which keep
  /// enough loads in flight and start at a pack if the tensor does; they are smaller if `warps`
  /// warps would get none. An odd number of elements per lane avoids bank conflicts.
  template <typename T>
  static ChunkShape of(int64_t rows, int columns, int lanes, int most_slots, int64_t warps,
                       int bytes) {
    ChunkShape shape{std::max(32 / lanes, kPack<T>), lanes, (columns + lanes - 1) / lanes, 0, 0, 0};
    while (shape.rows * columns * static_cast<int>(sizeof(T)) < bytes &&
           rows >= warps * shape.rows) {
      shape.rows *= 2;
    }
    if (lanes > 1 && shape.slots % 2 == 0 && shape.slots < most_slots) {
      ++shape.slots;
    }
    shape.behind = lanes * ((shape.slots + 3) / 4 * 4);
    shape.packs = (shape.rows * columns + shape.behind) / kPack<T> + 2;
    shape.keep_words = ChunkKeepBits::words(shape.rows * columns + shape.behind);
    return shape;
  }
};

/// For functions with one input kChunkSlots elements per lane, with two half as many.
template <RowFunction F>
__global__ void __launch_bounds__(256, kHasMaskTensor<F> ? 3 : 1)
    chunk_kernel(F function, int64_t rows, ChunkShape shape, ChunkMaskShape mask_shape) {
  extern __shared__ uint4 memory[];
  using T = typename F::T;
  const int columns = static_cast<int>(function.columns);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp) * shape.rows;
  wait_for_previous_kernel();
  if (first >= rows) {
    return;
  }
  const int chunk_rows = static_cast<int>(min(rows - first, static_cast<int64_t>(shape.rows)));
  const auto chunk = function.element_row(first);
  T* staged[F::kInputs];
  for_inputs<F::kInputs>([&](auto i) {
    staged[i] = copy_in(chunk.rows[i], memory + (warp * F::kInputs + i) * shape.packs,
                        chunk_rows * columns, lane);
  });
  uint4* const behind_inputs = memory + blockDim.x / 32 * F::kInputs * shape.packs;
  const auto mask = [&] {
    if constexpr (kHasMaskTensor<F>) {
      return ChunkMask(function.key_mask(), mask_shape,
                       reinterpret_cast<unsigned char*>(behind_inputs) + warp * mask_shape.bytes,
                       first, chunk_rows, lane);
    } else {
      return nullptr;
    }
  }();
  commit_copies();
  ChunkKeepBits keep_bits(reinterpret_cast<unsigned*>(behind_inputs) + warp * shape.keep_words);
  if constexpr (kDrops<F>) {
    keep_bits.draw(function, chunk, chunk_rows * columns, lane);
  }
  wait_for_copies<0>();
  __syncwarp();
  const auto reduce_rows = [&]<int kSlots>(std::integral_constant<int, kSlots>, int lanes_log2) {
    const LaneGroup group(1 << lanes_log2);
    for (int begin = 0; begin < chunk_rows; begin += 32 >> lanes_log2) {
      const int index = begin + (lane >> lanes_log2), in_chunk = min(index, chunk_rows - 1);
      auto row = function.element_row(first + in_chunk);
      if (index >= chunk_rows) {
        row.packed.clear();  // the lanes stay: their warp reduces together
        if constexpr (kDrops<F>) {
          row.interval.index = -1;  // no row whose statistics to note
        }
      }
      for_inputs<F::kInputs>([&](auto i) { row.rows[i] = staged[i] + in_chunk * columns; });
      row.out = staged[0] + in_chunk * columns;
      unsigned kept = 0;
      if constexpr (kDrops<F>) {
        kept = keep_bits.from(in_chunk * columns + group.rank() * shape.slots);
      }
      const unsigned char* mask_row = nullptr;
      if constexpr (kHasMaskTensor<F>) {
        mask_row = mask.row(in_chunk);
      }
      row_by_elements<kSlots>(function, row, group, shape.slots, kept, mask, mask_row);
    }
  };
  // To skip the other slots would take longer than the few elements of such rows do.
  constexpr int kFewSlots = 8;
  if (shape.lanes == 1 && shape.slots <= kFewSlots) {
    reduce_rows(std::integral_constant<int, kFewSlots>(), 0);
  } else {
    reduce_rows(std::integral_constant<int, kChunkSlots / F::kInputs>(), 31 - __clz(shape.lanes));
  }
  __syncwarp();
  copy_out(staged[0], chunk.out, chunk_rows * columns, lane);
}

}  // namespace warpfuse::cuda
