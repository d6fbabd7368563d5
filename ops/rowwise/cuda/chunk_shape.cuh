#pragma once

#include <algorithm>

#include "rowwise/cuda/chunk_copy.cuh"
#include "rowwise/cuda/chunk_keep_bits.cuh"

namespace warpfuse::cuda {

// The sizes of chunks, and which elements of a row a lane has (chunk.cuh).

/// The sizes of a launch of the tier chunk, which are the same for all rows.
struct ChunkShape {
  int rows = 0;        // of a chunk
  int lanes = 0;       // that share a row
  int slots = 0;       // of a lane, which holds an element in each
  int full = 0;        // slots [4, full) of all lanes are elements of a row
  int packs = 0;       // in shared memory for each input of a chunk, and what is loaded behind it
  int behind = 0;      // elements that are loaded behind a chunk
  int keep_words = 0;  // in shared memory for ChunkKeepBits
  bool apart = false;  // what is visible of each row is loaded alone; at most 32 rows then

  /// For `lanes` lanes of up to `most_slots` slots, and chunks of `bytes` or more, which keep
  /// enough loads in flight and start at a pack if the tensor does; they are smaller if `warps`
  /// warps would get none. An odd number of words per lane avoids bank conflicts. rules: they alone
  /// hide keys.
  template <typename T>
  static ChunkShape of(int64_t rows, int columns, int lanes, int most_slots, int64_t warps,
                       int bytes, bool rules = false, int pitch = 0) {
    constexpr int kMinApartBytes = 256;
    const bool apart = rules && columns * static_cast<int>(sizeof(T)) >= kMinApartBytes;
    // A row that begins in the middle of a word has a slot before its first element.
    const int before = columns % kWord<T> == 0 ? 0 : kWord<T> - 1, word_slots = lanes * kWord<T>;
    const int words = (columns + before + word_slots - 1) / word_slots;
    ChunkShape shape{.rows = std::max(32 / lanes, apart ? 1 : static_cast<int>(kPack<T>)),
                     .lanes = lanes,
                     .slots = words * kWord<T>,
                     .apart = apart};
    while (shape.rows * columns * static_cast<int>(sizeof(T)) < bytes &&
           rows >= warps * shape.rows) {
      shape.rows *= 2;
    }
    if (lanes > 1 && words % 2 == 0 && shape.slots + kWord<T> <= most_slots) {
      shape.slots += kWord<T>;
    }
    shape.full = std::min(shape.slots, columns - (lanes - 1) * shape.slots);
    shape.behind = lanes * ((shape.slots + 3) / 4 * 4);
    shape.packs = (shape.rows * std::max(columns, pitch) + shape.behind) / kPack<T> + 2;
    shape.keep_words = ChunkKeepBits::words(shape.rows * columns + shape.behind);
    return shape;
  }
};

/// Where the slots of a lane lie in a row: slot i has element `first` + i. Slots begin at a word of
/// shared memory, so that slot 0 of a row of half precision may be the last element of the row
/// before it.
struct ChunkSlots {
  int first;
  int begin, end;  // the slots that are elements of the row
  bool written;    // the lane writes results

  template <typename T>
  __device__ ChunkSlots(const T* row, int columns, int rank, const ChunkShape& shape, bool written)
      : first(rank * shape.slots - static_cast<int>(shared_address(row) / sizeof(T) % kWord<T>)),
        begin(max(-first, 0)),
        end(min(shape.slots, columns - first)),
        written(written) {
    __builtin_assume(begin <= 1);
  }
};

}  // namespace warpfuse::cuda
