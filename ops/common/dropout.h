#pragma once

#include <cmath>
#include <cstdint>

#include "common/philox.h"

namespace warpfuse {

/// Dropout drops element e of the contiguous tensor if its random number is below the threshold
/// p * 2^32. The number has 32 bits and is the same on every device:
///   upper 15: of the half word e % 8 of Philox block e / 8. A GPU compares two of them in one
///             instruction, as positive fp16 values, which order like their bits.
///   lower 17: shared by the block, the upper bits of the sum of its four words, which is
///             independent of any three of them.
struct Dropout {
  uint32_t upper;  // the threshold is upper * 2^16 + lower; upper is even, 2^16 for p = 1
  uint32_t lower;  // below 2^17
  double scale;    // of kept elements: 1 / (1 - p), or 0 for p = 1

  explicit Dropout(double p) {
    const auto threshold = static_cast<uint64_t>(std::llround(p * 4294967296.0));
    upper = static_cast<uint32_t>(threshold >> 17) * 2;
    lower = static_cast<uint32_t>(threshold & 0x1ffff);
    scale = p < 1 ? 1 / (1 - p) : 0;
  }

  /// The least half word of a block that is kept, an even number up to 2^16.
  WARPFUSE_HOST_DEVICE uint32_t least_kept(const PhiloxBlock& draws) const {
    const uint32_t sum = draws.words[0] + draws.words[1] + draws.words[2] + draws.words[3];
    return upper + (sum >> 15 < lower ? 2 : 0);
  }
};

/// Elements of a Philox block.
inline constexpr int kDropoutBlock = 8;

/// A keep mask of a block, one bit per element.
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
