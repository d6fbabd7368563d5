#pragma once

#include <string>

#include "rowwise/tuning.h"

namespace warpfuse {

/// Why no kernel can run a line of a table, or an empty string.
std::string refusal(const TuningEntry& entry);

}  // namespace warpfuse
