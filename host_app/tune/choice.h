#pragma once

#include <optional>
#include <vector>

#include "bench/timer.h"

namespace warpfuse::host::tune {

// A time is less beyond noise where its median is less by more than 1 % and by more than half the
// distance between the 5th and 95th percentile of either.
bool wins(const bench::Percentiles& time, const bench::Percentiles& before);
// A line is not worth it where a median of rows that it takes is more than 0.5 % above that before.
bool loses(const bench::Percentiles& time, const bench::Percentiles& before);

// Of a candidate on each probe; nothing where it has no kernel for it, so that rows as the probe's
// go on to the next line.
using OfProbes = std::vector<std::optional<bench::Percentiles>>;

// The candidates whose lines make the class faster: in turn the one that gains most over what the
// lines chosen so far come to, wins on a probe and loses on none. In the order of the table: the
// last that was chosen first, as it is what took over.
std::vector<size_t> choose(const std::vector<bench::Percentiles>& start,
                           const std::vector<OfProbes>& candidates);

// Time over that before, in the geometric mean over the probes that a chosen candidate takes.
double gain_of(const std::vector<bench::Percentiles>& start, const OfProbes& candidate);

// Whether a candidate wins on a probe by more than 2 % over what the lines chosen come to: it loses
// on another, and rows of a part of the class are better run by it.
bool divided(const std::vector<bench::Percentiles>& start, const std::vector<OfProbes>& candidates,
             const std::vector<size_t>& chosen);

// Whether one more class can be measured: one as long as the longest so far.
struct Budget {
  double seconds;
  double longest = 0;

  bool allows_another(double elapsed) const { return elapsed + longest <= seconds; }
  void add(double of_class) { longest = of_class > longest ? of_class : longest; }
};

// Seconds until all classes are measured or the budget ends, by those that are done.
double seconds_left(const Budget& budget, double elapsed, size_t done, size_t all);

}  // namespace warpfuse::host::tune
