#pragma once

#include <cmath>
#include <cstdint>

#include "common/philox.h"

namespace warpfuse {

/// What dropout does with an element: element e, counted over the whole contiguous tensor, has a
/// random number of 32 bits, the same on every device, and is dropped where that is below the
/// threshold p * 2^32. Its upper 15 bits are those of the half word e % 8 of Philox block e / 8, as
/// many as a GPU compares as positive halves, two elements at once; its lower 17 are those of the
/// whole block, the upper ones of the sum of its four words, which is independent of any three of
/// them.
struct Dropout {
  uint32_t upper;  // the threshold is upper * 2^16 + lower; upper is even, 2^16 for p = 1
  uint32_t lower;  // below 2^17
  double scale;    // of what is kept: 1 / (1 - p), or 0 for p = 1

  explicit Dropout(double p) {
    const auto threshold = static_cast<uint64_t>(std::llround(p * 4294967296.0));
    upper = static_cast<uint32_t>(threshold >> 17) * 2;
    lower = static_cast<uint32_t>(threshold & 0x1ffff);
    scale = p < 1 ? 1 / (1 - p) : 0;
  }

  /// What the half words of a block must reach to be kept, an even number up to 2^16.
  WARPFUSE_HOST_DEVICE uint32_t least_kept(const PhiloxBlock& draws) const {
    const uint32_t sum = draws.words[0] + draws.words[1] + draws.words[2] + draws.words[3];
    return upper + (sum >> 15 < lower ? 2 : 0);
  }
};

/// Elements of a Philox block.
inline constexpr int kDropoutBlock = 8;

/// Which elements of a block are kept, a bit each.
WARPFUSE_HOST_DEVICE inline unsigned kept_of_block(const Dropout& dropout, const Rng& rng,
                                                   uint64_t block) {
  const PhiloxBlock draws = philox(rng.seed, block, rng.offset);
  const uint32_t least = dropout.least_kept(draws);
  unsigned kept = 0;
  for (unsigned i = 0; i < kDropoutBlock; ++i) {
    const uint32_t draw = draws.words[i / 2] >> (i % 2 * 16) & 0xffff;
    kept |= (draw >= least ? 1u : 0u) << i;
  }
  return kept;
}

}  // namespace warpfuse
