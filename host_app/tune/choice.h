#pragma once

#include <array>
#include <optional>
#include <vector>

#include "bench/times.h"

namespace warpfuse::host::tune {

// What a probe counts among those of its class, and how much slower a line may make it.
struct Stake {
  double weight = 1;
  double max_loss = 0.005;
};

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

// Time before over that after, in the weighted geometric mean over the probes. `stakes` is empty
// where all count alike.
double gain_of(const std::vector<bench::Percentiles>& before,
               const std::vector<bench::Percentiles>& after, const std::vector<Stake>& stakes = {});

// The list of at most three candidates whose lines make the class fastest, in the weighted
// geometric mean over the probes, with no more lines than win somewhere. No probe may become slower
// than at the start by more than is at stake.
std::vector<size_t> choose(const std::vector<bench::Percentiles>& start,
                           const std::vector<OfProbes>& candidates,
                           const std::vector<Stake>& stakes = {});

// Whether a candidate wins on a probe by more than 2 % over what the lines chosen come to: it loses
// on another, and rows of a part of the class are better run by it.
bool divided(const std::vector<bench::Percentiles>& start, const std::vector<OfProbes>& candidates,
             const std::vector<size_t>& chosen);

// Candidates that may be fastest on a further probe: all but those that took more than 1.4 times as
// long as the fastest on each that they ran, of rows that are aligned or of rows that are not.
class Reach {
 public:
  explicit Reach(size_t candidates) : least_shares_(candidates) {}

  bool has(size_t candidate, bool aligned) const;
  void add(size_t candidate, bool aligned, double share);  // time over the fastest's

 private:
  std::vector<std::array<std::optional<double>, 2>> least_shares_;
};

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
