#pragma once

#include <algorithm>

#include "rowwise/cuda/chunk_copy.cuh"
#include "rowwise/cuda/mask.cuh"

namespace warpfuse::cuda {

// The mask tensor of a chunk (chunk.cuh), in shared memory: loaded from global memory by each row
// for itself, its elements would take longer than all else.

/// The sizes of a launch.
struct ChunkMaskShape {
  MaskRuns runs;      // copied in packs; without rows, all is copied by element
  int row_bytes = 0;  // of the mask
  int run_bytes = 0;  // in shared memory for the part of a run that a chunk has
  bool once = false;  // a chunk has whole runs; one serves for all others of the same elements
  int bytes = 0;      // for a chunk, and what is loaded behind it
  FastDivisor by_rows, by_same_rows, by_columns;

  /// For chunks of `rows` rows, and `behind` elements that are loaded behind them.
  static ChunkMaskShape of(const MaskRuns& runs, int rows, int columns, int element_bytes,
                           int behind) {
    constexpr int kMinRun = 32;  // shorter ones are faster by element, unless one serves for all
    constexpr int kPackBytes = 16;
    const int row_bytes = columns * element_bytes, behind_bytes = behind * element_bytes + 8;
    ChunkMaskShape shape{{}, row_bytes, 0, false, rows * row_bytes, {}, {}, FastDivisor(columns)};
    shape.once = !runs.all && 0 < runs.rows && runs.rows <= rows && rows <= runs.same_rows;
    if (runs.all || shape.once || runs.rows >= kMinRun) {
      const int largest = std::min(runs.rows, rows);
      const int count = runs.all     ? 1
                        : shape.once ? (runs.same_rows == INT_MAX ? 1 : 2)
                                     : 1 + (rows + runs.rows - 2) / runs.rows;
      // Behind each run stands its offset from a pack in global memory, which it keeps.
      shape.runs = runs;
      shape.run_bytes = round_up((largest - 1) * runs.step_bytes + row_bytes + kPackBytes - 1 +
                                     static_cast<int>(sizeof(int)),
                                 kPackBytes);
      shape.bytes = count * shape.run_bytes;
      shape.by_rows = FastDivisor(runs.rows);
      shape.by_same_rows = FastDivisor(runs.same_rows);
    }
    shape.bytes = round_up(shape.bytes + behind_bytes, kPackBytes);
    return shape;
  }

 private:
  static int round_up(int value, int to) { return (value + to - 1) / to * to; }
};

/// The mask of a warp's chunk.
template <typename KeyMask>
class ChunkMask {
 public:
  using C = typename KeyMask::C;

  /// Starts the loads of `rows` rows from `first` on.
  template <typename Copies>
  __device__ ChunkMask(const KeyMask& key_mask, const ChunkMaskShape& shape, const Copies& copies,
                       unsigned char* shared, int first, int rows, int lane)
      : key_mask_(key_mask), shape_(shape), shared_(shared) {
    const int run_rows = shape.runs.rows;
    if (run_rows == 0) {
      copy_elements(first, rows, lane);
      return;
    }
    first_in_run_ = shape.runs.all ? 0 : first - shape.by_rows.quotient(first) * run_rows;
    const auto load_run = [&](int run, int first_row, int run_rows) {
      const unsigned char* const from = key_mask.bytes_at(key_mask.offset_of(first_row));
      copies.load(from, shared + run * shape.run_bytes + pack_shift(from),
                  (run_rows - 1) * shape.runs.step_bytes + shape.row_bytes);
      if (lane == 0) {
        *shift_of(run) = pack_shift(from);
      }
    };
    if (shape.once) {
      const int same_rows = shape.runs.same_rows;
      others_ = same_rows - (first - shape.by_same_rows.quotient(first) * same_rows);
    }
    for (int begin = shape.once ? -first_in_run_ : 0, run = 0; begin < rows; ++run) {
      const int next = shape.runs.all ? rows : (run + 1) * run_rows - first_in_run_;
      load_run(run, first + begin, shape.once ? run_rows : min(next, rows) - begin);
      begin = !shape.once ? next : run == 0 ? others_ : rows;
    }
  }

  /// Column 0 of row `index` of the chunk.
  __device__ const unsigned char* row(int index) const {
    if (shape_.runs.rows == 0) {
      return shared_ + index * shape_.row_bytes;
    }
    const int at = first_in_run_ + index, run_of_row = shape_.by_rows.quotient(at);
    const int run = shape_.once ? index >= others_ : run_of_row,
              absent = !shape_.once && run == 0 ? first_in_run_ : 0;
    const int in_run = at - run_of_row * shape_.runs.rows - absent;
    return shared_ + run * shape_.run_bytes + *shift_of(run) + in_run * shape_.runs.step_bytes;
  }

  /// A bit for each of `slots` elements of a boolean mask, a multiple of four of them.
  template <int kSlots>
  __device__ unsigned visible(const unsigned char* row, int column, int slots) const {
    const unsigned shift = shared_address(row + column) % 4;
    const auto* const words = reinterpret_cast<const unsigned*>(row + column - shift);
    unsigned word = load_shared(words), bits = 0;
#pragma unroll
    for (int i = 0; i < kSlots; i += 4) {
      if (i < slots) {
        const unsigned next = load_shared(words + i / 4 + 1);
        bits |= non_zero_bytes(__funnelshift_r(word, next, 8 * shift), i);
        word = next;
      }
    }
    return bits;
  }

  /// Calls visit(M()) with the type of an additive mask's elements.
  template <typename Visit>
  __device__ __forceinline__ void visit_additive(const Visit& visit) const {
    if constexpr (sizeof(typename KeyMask::T) != sizeof(float)) {
      if (key_mask_.element_bytes() != sizeof(float)) {
        return visit(typename KeyMask::T());
      }
    }
    visit(float());
  }
  /// Loads neighbouring elements of an additive mask.
  template <typename M, int kCount>
  __device__ __forceinline__ static void load(const unsigned char* row, int column,
                                              C (&elements)[kCount]) {
    const auto* const from = reinterpret_cast<const M*>(row) + column;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      elements[i] = static_cast<C>(to_compute(load_shared(from + i)));
    }
  }

 private:
  __device__ int* shift_of(int run) const {
    return reinterpret_cast<int*>(shared_ + (run + 1) * shape_.run_bytes) - 1;
  }

  __device__ void copy_elements(int first, int rows, int lane) const {
    constexpr int kAtOnce = 4;
    const int columns = static_cast<int>(key_mask_.rules.keys), count = rows * columns;
    for (int begin = lane; begin < count; begin += 32 * kAtOnce) {
      int64_t from[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = min(begin + 32 * i, count - 1), row = shape_.by_columns.quotient(at);
        from[i] =
            key_mask_.offset_of(first + row) + (at - row * columns) * key_mask_.mask.key_stride;
      }
      key_mask_.visit_type([&](auto zero) {
        using M = decltype(zero);
        M elements[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          elements[i] = static_cast<const M*>(key_mask_.mask.data)[from[i]];
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          reinterpret_cast<M*>(shared_)[min(begin + 32 * i, count - 1)] = elements[i];
        }
      });
    }
  }

  /// A bit for each byte, from bit `at` on, a multiple of four.
  __device__ static unsigned non_zero_bytes(unsigned bytes, int at) {
    const unsigned high_bits = (((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bytes) & 0x80808080u;
    return high_bits * 0x00204081u >> (28 - at) & 0xfu << at;  // the product's upper four
  }

  const KeyMask& key_mask_;
  const ChunkMaskShape& shape_;
  unsigned char* shared_;
  int first_in_run_ = 0;
  int others_ = 0;  // the first row of the chunk whose run is of other elements, where `once`
};

}  // namespace warpfuse::cuda
