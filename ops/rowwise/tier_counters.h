#pragma once

#include "common/counters.h"
#include "rowwise/tuning.h"

namespace warpfuse {

/// The counter of a tier's launches: "tier.warp" and so on.
Counter& tier_counter(Tier tier);

/// Launches of the naive kernel: "tier.naive".
Counter& naive_counter();

}  // namespace warpfuse
