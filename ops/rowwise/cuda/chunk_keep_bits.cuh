#pragma once

#include "common/dropout.h"
#include "rowwise/cuda/row_function.cuh"

namespace warpfuse::cuda {

/// Which elements of a chunk dropout keeps, a bit per element in shared memory.
class ChunkKeepBits {
 public:
  /// For `elements` elements, and what is loaded before the first and behind the last one.
  __host__ __device__ static constexpr int words(int elements) {
    return (elements + kDropoutBlock) / 32 + 5;
  }

  __device__ explicit ChunkKeepBits(unsigned* words) : words_(words) {}

  /// By a warp. row: the chunk's first one.
  template <RowFunction F>
  __device__ void draw(const F& function, const typename F::Row& row, int elements, int lane) {
    const auto first = static_cast<uint64_t>(row.interval.first);
    before_ = 32 + static_cast<int>(first % kDropoutBlock);
    const int blocks = (before_ - 32 + elements + kDropoutBlock - 1) / kDropoutBlock;
    auto* const bytes = reinterpret_cast<unsigned char*>(words_ + 1);
    for (int i = lane; i < blocks; i += 32) {
      bytes[i] = static_cast<unsigned char>(
          kept_of_block(function.dropout().rule, row.interval.rng, first / kDropoutBlock + i));
    }
  }

  /// Those of 64 elements from `element` on, which may be -1.
  __device__ uint64_t from(int element) const {
    const int bit = before_ + element, word = bit / 32;
    return __funnelshift_r(words_[word], words_[word + 1], bit % 32) |
           uint64_t{__funnelshift_r(words_[word + 1], words_[word + 2], bit % 32)} << 32;
  }

 private:
  unsigned* words_;
  int before_ = 0;  // bits before the first element
};

}  // namespace warpfuse::cuda
