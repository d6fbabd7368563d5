#include "bench/times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {

double percentile(std::vector<double> samples, double fraction) {
  std::ranges::sort(samples);
  const double at = fraction * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above], at - static_cast<double>(below));
}

Percentiles percentiles_of(const std::vector<double>& samples) {
  return {.p5 = percentile(samples, 0.05),
          .p50 = percentile(samples, 0.5),
          .p95 = percentile(samples, 0.95)};
}

double microseconds_since(WallClock::time_point start) {
  return std::chrono::duration<double, std::micro>(WallClock::now() - start).count();
}

double timed_us(CudaRuntime* runtime, const std::function<void()>& work) {
  if (runtime == nullptr) {
    const WallClock::time_point start = WallClock::now();
    work();
    return microseconds_since(start);
  }
  const std::unique_ptr<CudaStopwatch> watch = runtime->stopwatch();
  watch->start();
  work();
  watch->stop();
  return watch->microseconds();
}

double TimedCall::sample(CudaRuntime* runtime) const {
  const double us = timed_us(runtime, [&] {
    for (int64_t i = 0; i < calls; ++i) {
      call();
    }
  });
  return us / static_cast<double>(calls);
}

void TimedCall::set_sample_length(double sample_us, double call_us) {
  constexpr double kClockUs = 0.1;  // the least that a call may seem to take
  calls = static_cast<int64_t>(std::ceil(sample_us / std::max(call_us, kClockUs)));
}

void sample_in_turn(std::vector<TimedCall*> calls, int rounds, int least_rounds,
                    CudaRuntime* runtime) {
  for (int round = 0; round < rounds && (round < least_rounds || !interrupted()); ++round) {
    for (TimedCall* timed : calls) {
      timed->us.push_back(timed->sample(runtime));
    }
    std::ranges::rotate(calls, calls.empty() ? calls.end() : calls.begin() + 1);
  }
}

double median_us(int warm_ups, int samples, const std::function<double()>& sample) {
  for (int i = 0; i < warm_ups; ++i) {
    sample();
  }
  std::vector<double> us(static_cast<size_t>(samples));
  std::ranges::generate(us, sample);
  return percentile(std::move(us), 0.5);
}

}  // namespace warpfuse::host::bench
