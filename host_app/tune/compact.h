#pragma once

#include <rowwise/tuning.h>

namespace warpfuse::host::tune {

// The table without the lines that change nothing: every row has the same plan, on any GPU, by
// default and by the name of each tier.
Tuning compacted(const Tuning& table);

}  // namespace warpfuse::host::tune
