#pragma once

#include "common/counters.h"
#include "rowwise/tuning.h"

namespace warpfuse {

/// The counter of a tier's kernel launches: "tier.warp" and so on.
Counter& tier_counter(Tier tier);

/// "chunk.units": launches of the tier chunk's kernels without shared memory (cuda/units.cuh).
Counter& units_counter();

/// "draws.ahead": launches whose blocks may draw before the kernel before theirs has ended.
Counter& draws_ahead_counter();

}  // namespace warpfuse
