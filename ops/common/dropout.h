#pragma once

#include <cmath>
#include <cstdint>

#include "common/philox.h"

namespace warpfuse {

/// What dropout does with an element: element e, counted over the whole contiguous tensor, has a
/// random number of 32 bits, the same on every device, and is dropped where that is below the
/// threshold p * 2^32. Its upper 16 bits are the half word e % 8 of Philox block e / 8; the lower
/// ones are looked up only where the upper ones leave it open, one time of 65,536.
struct Dropout {
  uint32_t upper;  // the threshold is upper * 2^16 + lower
  uint32_t lower;  // up to 2^16, for p = 1
  double scale;    // of what is kept: 1 / (1 - p), or 0 for p = 1

  explicit Dropout(double p) {
    const auto threshold = static_cast<uint64_t>(std::llround(p * 4294967296.0));
    const bool all = threshold >> 32 != 0;
    upper = all ? 0xffff : static_cast<uint32_t>(threshold >> 16);
    lower = all ? 0x10000 : static_cast<uint32_t>(threshold & 0xffff);
    scale = p < 1 ? 1 / (1 - p) : 0;
  }
};

/// Elements of a Philox block.
inline constexpr int kDropoutBlock = 8;

/// Which elements of a block are kept, a bit each.
WARPFUSE_HOST_DEVICE inline unsigned kept_of_block(const Dropout& dropout, const Rng& rng,
                                                   uint64_t block) {
  constexpr uint64_t kLowerDraws = uint64_t{1} << 63;  // in the counter, beside the offset
  const PhiloxBlock draws = philox(rng.seed, block, rng.offset);
  unsigned kept = 0;
  unsigned open = 0;
  for (unsigned i = 0; i < kDropoutBlock; ++i) {
    const uint32_t draw = draws.words[i / 2] >> (i % 2 * 16) & 0xffff;
    kept |= (draw > dropout.upper ? 1u : 0u) << i;
    open |= (draw == dropout.upper ? 1u : 0u) << i;
  }
  if (dropout.lower == 0) {
    return kept | open;
  }
  if (open != 0) {
    const PhiloxBlock lower = philox(rng.seed, block, rng.offset ^ kLowerDraws);
    for (unsigned i = 0; i < kDropoutBlock; ++i) {
      const uint32_t draw = lower.words[i / 2] >> (i % 2 * 16) & 0xffff;
      kept |= ((open >> i & 1) != 0 && draw >= dropout.lower ? 1u : 0u) << i;
    }
  }
  return kept;
}

/// Which of the kCount <= 8 elements from `first` on are kept, a bit each.
template <int kCount>
WARPFUSE_HOST_DEVICE inline unsigned kept_elements(const Dropout& dropout, const Rng& rng,
                                                   uint64_t first) {
  static_assert(kCount <= kDropoutBlock);
  constexpr unsigned kBlock = kDropoutBlock, kAll = (1u << static_cast<unsigned>(kCount)) - 1;
  const uint64_t block = first / kBlock;
  const auto before = static_cast<unsigned>(first % kBlock);
  unsigned kept = kept_of_block(dropout, rng, block);
  if (before + kCount > kBlock) {
    kept |= kept_of_block(dropout, rng, block + 1) << kBlock;
  }
  return kept >> before & kAll;
}

}  // namespace warpfuse
