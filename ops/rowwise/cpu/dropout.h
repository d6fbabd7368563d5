#pragma once

#include <algorithm>
#include <cstdint>

#include "common/dropout.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// The random words of up to kDropoutChunk Philox blocks, and the smallest half word that is kept
/// of each. The layout (structure of arrays) lets the compiler vectorise over blocks, which is
/// three times as fast as words of a block side by side.
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

/// The factors of the elements of whole blocks: `scale` where they are kept, else 0.
template <typename C>
void block_factors(const Dropout& dropout, const Rng& rng, uint64_t first, int64_t blocks, C scale,
                   C* factors) {
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

/// The factors of `count` elements from `first` on, which need not be the first of a block.
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
      block_factors(dropout, rng, static_cast<uint64_t>(block), blocks, scale,
                    factors + (at - first));
    } else {
      alignas(64) C drawn[kElements];
      block_factors(dropout, rng, static_cast<uint64_t>(block), blocks, scale, drawn);
      std::copy(drawn + (at - block * kDropoutBlock),
                drawn + (std::min(drawn_end, end) - block * kDropoutBlock), factors + (at - first));
    }
    at = drawn_end;
  }
}

/// The sum of y * g over a row, where y = exp(x - maximum - log_sum). Writes y to `scratch`, which
/// has room for whole packs.
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
