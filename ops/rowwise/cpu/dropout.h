#pragma once

#include <algorithm>
#include <cstdint>

#include "common/dropout.h"
#include "rowwise/cpu/forward.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// The random words of up to kDropoutChunk Philox blocks, and what their half words must reach to
/// be kept. The compiler draws a vector of blocks at a time; words of a block side by side would
/// take it three times as long.
constexpr int64_t kDropoutChunk = 32;
struct DrawnBlocks {
  alignas(64) uint32_t words[4][kDropoutChunk];
  alignas(64) uint32_t least[kDropoutChunk];
};

inline void draw_blocks(Dropout dropout, Rng rng, uint64_t first, int64_t blocks,
                        DrawnBlocks& drawn) {
  for (int64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock block = philox(rng.seed, first + static_cast<uint64_t>(i), rng.offset);
    drawn.words[0][i] = block.words[0];
    drawn.words[1][i] = block.words[1];
    drawn.words[2][i] = block.words[2];
    drawn.words[3][i] = block.words[3];
    drawn.least[i] = dropout.least_kept(block);
  }
}

/// What the elements of whole blocks are multiplied by: `scale` where they are kept, else 0.
template <typename C>
void factors_of_blocks(const Dropout& dropout, const Rng& rng, uint64_t first, int64_t blocks,
                       C scale, C* factors) {
  DrawnBlocks drawn;
  draw_blocks(dropout, rng, first, blocks, drawn);
  for (int64_t i = 0; i < blocks; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      const uint32_t word = drawn.words[j][i], least = drawn.least[i];
      factors[8 * i + 2 * j] = (word & 0xffff) >= least ? scale : C(0);
      factors[8 * i + 2 * j + 1] = word >> 16 >= least ? scale : C(0);
    }
  }
}

/// The same for the `count` elements from `first` on, wherever their blocks begin.
template <typename C>
void draw_factors(const Dropout& dropout, const Rng& rng, int64_t first, int64_t count, C scale,
                  C* factors) {
  constexpr int64_t kElements = kDropoutChunk * kDropoutBlock;
  const int64_t end = first + count;
  for (int64_t at = first; at < end;) {
    const int64_t block = at / kDropoutBlock;
    const int64_t blocks =
        std::min((end - block * kDropoutBlock + kDropoutBlock - 1) / kDropoutBlock, kDropoutChunk);
    const int64_t drawn_end = (block + blocks) * kDropoutBlock;
    if (at == block * kDropoutBlock && drawn_end <= end) {
      factors_of_blocks(dropout, rng, static_cast<uint64_t>(block), blocks, scale,
                        factors + (at - first));
    } else {
      alignas(64) C drawn[kElements];
      factors_of_blocks(dropout, rng, static_cast<uint64_t>(block), blocks, scale, drawn);
      std::copy(drawn + (at - block * kDropoutBlock),
                drawn + (std::min(drawn_end, end) - block * kDropoutBlock), factors + (at - first));
    }
    at = drawn_end;
  }
}

// --- rows where softmax comes first -----------------------------------------------------------

/// y = softmax(x) * factors of one row, as softmax_row. scratch and factors have room for whole
/// packs. Returns the sum of exp(x - maximum).
template <typename T, typename Row>
C10_ALWAYS_INLINE Compute<T> dropped_softmax_row(const Row& x, Compute<T> maximum,
                                                 const Compute<T>* factors, T* y,
                                                 Compute<T>* scratch, int64_t count, bool streamed,
                                                 const T* next) {
  const Compute<T> sum = sum_of_powers<T, true>(x, maximum, scratch, count, next);
  const Pack<T> reciprocal(1 / sum);
  transform(y, count, streamed, [&](int64_t i, int64_t) C10_ALWAYS_INLINE_ATTRIBUTE {
    return Pack<T>::loadu(scratch + i) * reciprocal * Pack<T>::loadu(factors + i);
  });
  return sum;
}

/// The sum of y * g over a row, y = exp(x - maximum - log_sum), which is kept in `scratch`, with
/// room for whole packs.
template <typename T, typename Row, typename Gradients>
C10_ALWAYS_INLINE Compute<T> recomputed_sum(const Row& x, const Gradients& g, Compute<T> maximum,
                                            Compute<T> log_sum, Compute<T>* scratch,
                                            int64_t count) {
  const Pack<T> max(maximum), log(log_sum);
  return sum_of<T>(count, [&](int64_t i, int64_t n) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Pack<T> y = exponential(x(i, n) - max - log);
    y.store(scratch + i);
    return y * g(i, n);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
