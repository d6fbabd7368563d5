#pragma once

#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/timer.h"

namespace warpfuse::host::bench {

// Why a variant has times, or has none, and what they come to.
struct VariantResult {
  std::string name;
  Variant::Kind kind;
  Checked check;
  std::optional<Timing> timing;  // where the result is right
};

struct Row {
  Case c;
  Bytes bytes;
  Timer::LargeCopy large_copy;  // of the run
  Timing copy;                  // of the same bytes, the fastest
  std::vector<VariantResult> variants;
};

// Every variant checked, then timed beside a copy of the same bytes. What fails in one variant
// stays in that variant; Error(device) and a lack of memory for the inputs go to the caller.
Row measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                Timer& timer, const Timer::LargeCopy& large_copy);

// Whether a variant of the plugin is wrong, so that the run must fail.
bool has_wrong_result(const Row& row);

Json to_json(const Row& row);

}  // namespace warpfuse::host::bench
