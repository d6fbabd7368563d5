#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

inline constexpr int64_t kMebibyte = int64_t{1024} * 1024;

struct Percentiles {
  double p5 = 0, p50 = 0, p95 = 0;
};

// The value below which `fraction` of the samples lie, interpolated linearly between neighbours in
// order, as numpy's default. Needs at least one sample.
double percentile(std::vector<double> samples, double fraction);

Percentiles percentiles_of(const std::vector<double>& samples);

using WallClock = std::chrono::steady_clock;

double microseconds_since(WallClock::time_point start);

template <typename Action>
double wall_us(const Action& action) {
  const WallClock::time_point start = WallClock::now();
  action();
  return microseconds_since(start);
}

// Microseconds of `work` on a GPU's current stream.
double gpu_us(CudaRuntime& runtime, const std::function<void()>& work);

}  // namespace warpfuse::host::bench
