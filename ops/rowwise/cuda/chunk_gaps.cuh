#pragma once

#include "rowwise/cuda/chunk_copy.cuh"

namespace warpfuse::cuda {

// Rows with gaps between them in global memory, as a slice of longer rows has them, in the tier
// chunk (chunk.cuh).

/// The gap of a launch.
struct ChunkGap {
  int elements = 0;  // behind each row in global memory
  int pitch = 0;     // elements from a row to the next in shared memory

  /// An odd number of words from a row to the next avoids bank conflicts.
  template <typename T>
  static ChunkGap of(int elements, int columns) {
    const bool words = elements != 0 && columns % kWord<T> == 0;
    return {elements, words ? (columns / kWord<T> | 1) * kWord<T> : columns};
  }
};

/// The words of rows, or their units, by a warp: lanes side by side have those of a row, as many as
/// a power of two that covers it.
struct RowLanes {
  int column, columns;  // from the lane's first one to the next
  int row, rows;

  __device__ explicit RowLanes(int row_columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int log2 = min(32 - __clz(row_columns - 1), 5);
    columns = 1 << log2;
    rows = 32 >> log2;
    column = lane & (columns - 1);
    row = lane >> log2;
  }
};

/// Calls visit(row, column) for a lane's words of rows.
template <typename Visit>
__device__ __forceinline__ void for_words(int rows, int row_words, const Visit& visit) {
  const RowLanes lanes(row_words);
  for (int column = lanes.column; column < row_words; column += lanes.columns) {
#pragma unroll 4
    for (int row = lanes.row; row < rows; row += lanes.rows) {
      visit(row, column);
    }
  }
}

/// Loads rows of whole words, which begin at words `stride` words apart, to rows `pitch` words
/// apart.
__device__ __forceinline__ void load_rows_of_words(const unsigned* from, int stride, unsigned* to,
                                                   int pitch, int rows, int row_words) {
  for_words(rows, row_words, [&](int row, int column) {
    copy_4_bytes(shared_address(to + row * pitch + column), from + row * stride + column);
  });
  commit_copies();
  wait_for_copies<0>();
}

/// Loads rows of 2-byte elements at any alignment: loads aligned units of 8 bytes, and stores their
/// elements one by one.
template <typename T>
__device__ __forceinline__ void load_rows_of_units(const T* from, int stride, T* to, int pitch,
                                                   int rows, int columns) {
  constexpr int kElements = 8 / static_cast<int>(sizeof(T));  // of a unit
  constexpr int kAtOnce = 8;
  const int length = (rows - 1) * stride + columns;
  const auto shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) / sizeof(T));
  // Elements of a row's first unit that lie before the row.
  const auto before = [&](int row) {
    return static_cast<int>((shift + static_cast<unsigned>(row * stride)) % kElements);
  };
  // All elements of the unit at `at` are between the first and the last row's.
  const auto is_whole = [&](int at) {
    return static_cast<unsigned>(at) < static_cast<unsigned>(max(length - kElements + 1, 0));
  };
  const auto store = [&](int row, int column, const T* elements) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (static_cast<unsigned>(column + i) < static_cast<unsigned>(columns)) {
        to[row * pitch + column + i] = elements[i];
      }
    }
  };
  // Units that have an element of a row, at most.
  const int row_units = (columns + 2 * kElements - 2) / kElements;
  const RowLanes lanes(row_units);
#pragma unroll 1
  for (int unit = lanes.column; unit < row_units; unit += lanes.columns) {
#pragma unroll 1
    for (int first = lanes.row; first < rows; first += kAtOnce * lanes.rows) {
      uint2 bits[kAtOnce];
      int places[kAtOnce];  // row and column in one register
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * lanes.rows, column = unit * kElements - before(row);
        const int at = row * stride + column;
        load_8_bytes_if(is_whole(at), from + at, bits[i]);
        places[i] = row << 16 | (is_whole(at) ? column & 0xffff : 0x7fff);
      }
#pragma unroll
      for (int& place : places) {
        asm volatile("" : "+r"(place));  // all loads before the first store
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        T elements[kElements];
        memcpy(elements, &bits[i], sizeof(elements));
        store(places[i] >> 16, static_cast<short>(places[i]), elements);
      }
    }
  }
  // The first and the last unit may have bytes outside, and then go by elements; two rows may share
  // them.
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 8) {
    const int row = lane % 2 == 0 ? min(lane / 2 % 2, rows - 1) : max(rows - 1 - lane / 2 % 2, 0);
    const int unit = lane < 4 ? 0 : (before(row) + columns - 1) / kElements;
    const int column = unit * kElements - before(row), at = row * stride + column;
    if (!is_whole(at)) {
      store(row, column, from + at);
    }
  }
}

/// Loads a chunk's rows.
template <typename T>
__device__ __forceinline__ void load_rows(const T* from, T* to, int rows, int columns,
                                          const ChunkGap& gap) {
  const int stride = columns + gap.elements;
  if constexpr (kWord<T> > 1) {
    const bool words = columns % kWord<T> == 0 && stride % kWord<T> == 0 &&
                       reinterpret_cast<uintptr_t>(from) % sizeof(unsigned) == 0;
    if (!words) {
      return load_rows_of_units(from, stride, to, gap.pitch, rows, columns);
    }
  }
  load_rows_of_words(reinterpret_cast<const unsigned*>(from), stride / kWord<T>,
                     reinterpret_cast<unsigned*>(to), gap.pitch / kWord<T>, rows,
                     columns / kWord<T>);
}

/// Stores rows, which are whole words where they are not neighbours in shared memory.
template <typename T, typename Copies>
__device__ __forceinline__ void store_rows(const T* from, T* to, int rows, int columns,
                                           const ChunkGap& gap, const Copies& copies) {
  if (gap.pitch == columns) {
    return copies.store(from, to, rows * columns);
  }
  __syncwarp();
  const auto* const words = reinterpret_cast<const unsigned*>(from);
  const int row_words = columns / kWord<T>, pitch = gap.pitch / kWord<T>;
  for_words(rows, row_words, [&](int row, int column) {
    reinterpret_cast<unsigned*>(to)[row * row_words + column] = words[row * pitch + column];
  });
}

}  // namespace warpfuse::cuda
