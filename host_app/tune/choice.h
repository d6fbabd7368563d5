#pragma once

#include <optional>
#include <vector>

#include "bench/times.h"

namespace warpfuse::host::tune {

// How much slower a line may make a row.
inline constexpr double kMaxLoss = 0.005;

// A time is less beyond noise where its median is less by more than 1 % and by more than half the
// distance between the 5th and 95th percentile of either.
bool wins(const bench::Percentiles& time, const bench::Percentiles& before);

// Of a candidate on each probe; nothing where it has no kernel for it, so that rows as the probe's
// go on to the next line.
using OfProbes = std::vector<std::optional<bench::Percentiles>>;

// The first of the lines, each for a candidate and in the order of the table, that takes the probe.
std::optional<size_t> taker_of(const std::vector<size_t>& lines,
                               const std::vector<OfProbes>& candidates, size_t probe);

// Times by these lines: each probe follows the one that takes it, else the start's.
std::vector<bench::Percentiles> times_of(const std::vector<size_t>& lines,
                                         const std::vector<bench::Percentiles>& start,
                                         const std::vector<OfProbes>& candidates);

// Time before over that after, in the geometric mean over the probes.
double gain_of(const std::vector<bench::Percentiles>& before,
               const std::vector<bench::Percentiles>& after);

// The list of at most three candidates whose lines make the class fastest, in the geometric mean
// over the probes, with no more lines than win somewhere. No probe may become slower than at the
// start by more than its share of `max_losses`, kMaxLoss where that is empty.
std::vector<size_t> choose(const std::vector<bench::Percentiles>& start,
                           const std::vector<OfProbes>& candidates,
                           const std::vector<double>& max_losses = {});

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
