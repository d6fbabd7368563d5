#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/decode/cuda_runtime.h"

namespace warpfuse::host::bench {

// Microseconds of a call, a sample for each round.
struct CallTimes {
  int64_t calls = 0;  // per sample
  std::vector<double> us;
  std::string failure;  // what the first call said; then nothing was timed
};

// Times calls in turn, round by round, on a GPU between two events and else by the wall clock. A
// sample is of enough calls for ten milliseconds. Ends early, with the rounds that there are, when
// the user interrupts. `runtime` is null on the CPU.
std::vector<CallTimes> time_in_turn(const std::vector<std::function<void()>>& calls, int rounds,
                                    CudaRuntime* runtime);

}  // namespace warpfuse::host::bench
