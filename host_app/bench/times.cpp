#include "bench/times.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/decode/cuda_runtime.h"

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

double median_us(int warm_ups, int samples, const std::function<double()>& sample) {
  for (int i = 0; i < warm_ups; ++i) {
    sample();
  }
  std::vector<double> us(static_cast<size_t>(samples));
  std::ranges::generate(us, sample);
  return percentile(std::move(us), 0.5);
}

}  // namespace warpfuse::host::bench
