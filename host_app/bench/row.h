#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/timer.h"

namespace warpfuse::host::bench {

// One row of the JSON: every variant checked, then timed beside a copy of the same bytes. `copy` is
// the large one of this run. What fails in one variant stays in that variant; Error(device) and a
// lack of memory for the inputs go to the caller.
Json measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                 Timer& timer, const Timer::LargeCopy& copy);

// Whether a variant of the plugin in the row is wrong, so that the run must fail.
bool has_wrong_result(const Json& row);

}  // namespace warpfuse::host::bench
