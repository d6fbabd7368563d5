#include "bench/module_times.h"

#include <algorithm>
#include <cmath>

#include "bench/generation_step.h"
#include "runtime/errors.h"
#include "runtime/interrupt.h"

namespace warpfuse::host::bench {
namespace {

constexpr double kSampleUs = 10'000;
constexpr int kFirstCalls = 3;  // whose times are not kept

double sample_us(const std::function<void()>& call, int64_t calls, CudaRuntime* runtime) {
  const double us = timed_us(runtime, [&] {
    for (int64_t i = 0; i < calls; ++i) {
      call();
    }
  });
  return us / static_cast<double>(calls);
}

// Warms up, and finds how many calls make a sample.
void prepare(CallTimes& times, const std::function<void()>& call, CudaRuntime* runtime) {
  try {
    call();
  } catch (const Error& raised) {
    times.failure = raised.what();
    return;
  }
  double us = sample_us(call, 1, runtime);
  for (int i = 1; i < kFirstCalls; ++i) {
    us = std::min(us, sample_us(call, 1, runtime));
  }
  times.calls = std::max<int64_t>(static_cast<int64_t>(std::ceil(kSampleUs / us)), 1);
}

}  // namespace

std::vector<CallTimes> time_in_turn(const std::vector<std::function<void()>>& calls, int rounds,
                                    CudaRuntime* runtime) {
  std::vector<CallTimes> all(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    prepare(all[i], calls[i], runtime);
  }
  for (int round = 0; round < rounds && (round == 0 || !interrupted()); ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (all[i].failure.empty()) {
        all[i].us.push_back(sample_us(calls[i], all[i].calls, runtime));
      }
    }
  }
  return all;
}

}  // namespace warpfuse::host::bench
