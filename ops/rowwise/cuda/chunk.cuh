#pragma once

#include <algorithm>

#include "common/dropout.h"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

// Tier chunk: short rows that are not aligned to packs. Packs and edges of each row would leave
// most lanes idle, so a warp copies a chunk of consecutive rows, which is contiguous, to shared
// memory in packs. A few lanes share a row there, by elements, and the results leave in packs too.

/// Copies `elements` elements to shared memory, with the offset from a 16-byte boundary that they
/// have in global memory; done at wait_for_copies(). Returns the first one's place.
template <typename T>
__device__ __forceinline__ T* copy_in(const T* from, uint4* shared, int elements, int lane) {
  const int shift = pack_shift(from);
  T* const to = reinterpret_cast<T*>(shared) + shift;
  const int head = min(elements, (kPack<T> - shift) % kPack<T>);
  const int packs = (elements - head) / kPack<T>, tail = head + packs * kPack<T>;
  for (int i = lane; i < packs; i += 32) {
    copy_16_bytes(shared_address(to + head + i * kPack<T>), from + head + i * kPack<T>);
  }
  if (lane < head) {
    to[lane] = from[lane];
  }
  if (tail + lane < elements) {
    to[tail + lane] = from[tail + lane];
  }
  return to;
}

/// Copies elements from where copy_in() would have put them, in packs if those are aligned in both
/// places.
template <typename T>
__device__ __forceinline__ void copy_out(const T* from, T* to, int elements, int lane) {
  const int shift = pack_shift(to);
  if (shared_address(from) / sizeof(T) % kPack<T> != static_cast<unsigned>(shift)) {
    for (int i = lane; i < elements; i += 32) {
      to[i] = from[i];
    }
    return;
  }
  const int head = min(elements, (kPack<T> - shift) % kPack<T>);
  const int packs = (elements - head) / kPack<T>, tail = head + packs * kPack<T>;
  for (int i = lane; i < packs; i += 32) {
    store_16_bytes(to + head + i * kPack<T>,
                   *reinterpret_cast<const uint4*>(from + head + i * kPack<T>));
  }
  if (lane < head) {
    to[lane] = from[lane];
  }
  if (tail + lane < elements) {
    to[tail + lane] = from[tail + lane];
  }
}

/// Loads an element of shared memory, also where the compiler sees no need to.
template <typename T>
__device__ __forceinline__ T load_shared(const T* from) {
  if constexpr (sizeof(T) == 2) {
    unsigned short bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(shared_address(from)));
    return reinterpret_cast<const T&>(bits);
  } else {
    T value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(shared_address(from)));
    return value;
  }
}

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
/// bit for each of this lane's.
template <int kSlots, RowFunction F>
__device__ __forceinline__ void row_by_elements(const F& function, const typename F::Row& row,
                                                const LaneGroup& group, int slots, unsigned kept) {
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
  const auto inside = [&](int i) { return i >= begin && i < end; };
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
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      elements[i + j] =
          function.to_edge(row, first + i + j, inside(i + j), raws[j], keep_mask(i + j));
    }
  });
  const auto result = function.reduce(
      row, group, [&](auto, const auto& visit) { for_slots([&](int i) { visit(elements[i]); }); });
  __syncwarp();  // the next row may have been loaded too
  for_slots([&](int i) {
    if (i < count) {
      function.write(row, first + i, inside(i), elements[i], result, keep_mask(i), kReduced);
    }
  });
}

/// The sizes of a launch, which are the same for all rows.
struct ChunkShape {
  int rows;        // of a chunk
  int lanes;       // that share a row
  int slots;       // elements of a lane
  int packs;       // in shared memory for each input of a chunk, and what is loaded behind it
  int keep_words;  // in shared memory for ChunkKeepBits

  /// For `lanes` lanes of up to `most_slots` elements, and chunks of `bytes` or more, which keep
  /// enough loads in flight and start at a pack if the tensor does; they are smaller if `warps`
  /// warps would get none. An odd number of elements per lane avoids bank conflicts.
  template <typename T>
  static ChunkShape of(int64_t rows, int columns, int lanes, int most_slots, int64_t warps,
                       int bytes) {
    ChunkShape shape{std::max(32 / lanes, kPack<T>), lanes, (columns + lanes - 1) / lanes, 0, 0};
    while (shape.rows * columns * static_cast<int>(sizeof(T)) < bytes &&
           rows >= warps * shape.rows) {
      shape.rows *= 2;
    }
    if (lanes > 1 && shape.slots % 2 == 0 && shape.slots < most_slots) {
      ++shape.slots;
    }
    const int behind = lanes * ((shape.slots + 3) / 4 * 4);
    shape.packs = (shape.rows * columns + behind) / kPack<T> + 2;
    shape.keep_words = ChunkKeepBits::words(shape.rows * columns + behind);
    return shape;
  }
};

/// For functions with one input kChunkSlots elements per lane, with two half as many.
template <RowFunction F>
__global__ void __launch_bounds__(256) chunk_kernel(F function, int64_t rows, ChunkShape shape) {
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
  commit_copies();
  ChunkKeepBits keep_bits(
      reinterpret_cast<unsigned*>(memory + blockDim.x / 32 * F::kInputs * shape.packs) +
      warp * shape.keep_words);
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
      row_by_elements<kSlots>(function, row, group, shape.slots, kept);
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
