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

// Microseconds of `work`: on a GPU of the current stream, else, without a runtime, by the wall
// clock.
double timed_us(CudaRuntime* runtime, const std::function<void()>& work);

// Of so many samples after others that do not count.
double median_us(int warm_ups, int samples, const std::function<double()>& sample);

}  // namespace warpfuse::host::bench
