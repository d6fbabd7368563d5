#pragma once

#include "bench/algorithms.h"
#include "bench/timer.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

struct Row {
  Json json;
  bool wrong = false;  // a result of the plugin, so that the run must fail
};

// Every variant checked, then timed beside a copy of the same bytes. What fails in one variant
// stays in that variant; Error(device) and a lack of memory for the inputs go to the caller.
Row measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                Timer& timer, const Timer::LargeCopy& large_copy);

// Calls the variant once for each row that has it, after a warm-up and between the marks that a
// profiler waits for (ncu --profile-from-start off), so that its counters are that call's. Prints
// one JSON object a line: the row's key, the variant and how many kernels the call has. Throws
// Error(usage) for a name that no row has.
void profile_rows(const std::vector<Case>& cases, const std::string& variant,
                  const Algorithms& algorithms, c10::Device device, CudaRuntime& runtime);

}  // namespace warpfuse::host::bench
