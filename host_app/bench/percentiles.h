#pragma once

#include <vector>

namespace warpfuse::host::bench {

struct Percentiles {
  double p5 = 0, p50 = 0, p95 = 0;
};

// The value below which `fraction` of the samples lie, interpolated linearly between neighbours in
// order, as numpy's default. Needs at least one sample.
double percentile(std::vector<double> samples, double fraction);

Percentiles percentiles_of(const std::vector<double>& samples);

}  // namespace warpfuse::host::bench
