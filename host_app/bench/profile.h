#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "bench/algorithms.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

// Calls the variant once for each row that has it, after a warm-up and between the marks that a
// profiler waits for (ncu --profile-from-start off), so that its counters are that call's. Prints
// one JSON object a line: the row's key, the variant and how many kernels the call has. Throws
// Error(usage) for a name that no row has.
void profile_rows(const std::vector<Case>& cases, const std::string& variant,
                  const Algorithms& algorithms, c10::Device device, CudaRuntime& runtime);

}  // namespace warpfuse::host::bench
