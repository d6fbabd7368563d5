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

// A call that is timed in turn with others, in samples of several calls.
struct TimedCall {
  std::function<void()> call;
  int64_t calls = 1;            // per sample
  std::vector<double> us = {};  // per call, of each sample

  // The microseconds per call of another sample, which is not kept.
  double sample(CudaRuntime* runtime) const;
  // For samples of so many microseconds, where a call takes `call_us`.
  void set_sample_length(double sample_us, double call_us);
};

// Takes `rounds` samples of each, one after the other in each round, so that a drift of the clock
// meets all alike. Ends early when the user interrupts, after at least `least_rounds`.
void sample_in_turn(std::vector<TimedCall*> calls, int rounds, int least_rounds,
                    CudaRuntime* runtime);

// Of so many samples after others that do not count.
double median_us(int warm_ups, int samples, const std::function<double()>& sample);

}  // namespace warpfuse::host::bench
