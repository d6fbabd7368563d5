#pragma once

#include "bench/timer.h"
#include "tune/merge.h"

namespace warpfuse::host::tune {

// A time is less beyond noise where its median is less by more than 1 % and by more than half the
// distance between the 5th and 95th percentile of either.
bool wins(const bench::Percentiles& time, const bench::Percentiles& before);
// A line is not worth it where a median of rows that it takes is more than 0.5 % above that before.
bool loses(const bench::Percentiles& time, const bench::Percentiles& before);

// Of a candidate on each probe; nothing where it has no kernel for it, so that rows as the probe's
// go on to the next line.
using OfProbes = std::vector<std::optional<bench::Percentiles>>;

// Of lines for some of the candidates, in the order of the table: each probe follows the first that
// takes it, else the start's.
std::vector<bench::Percentiles> times_of(const std::vector<size_t>& lines,
                                         const std::vector<bench::Percentiles>& start,
                                         const std::vector<OfProbes>& candidates);

// Time before over that after, in the geometric mean over the probes.
double gain_of(const std::vector<bench::Percentiles>& before,
               const std::vector<bench::Percentiles>& after);

// The candidates whose lines make the class faster, in the order of the table: added in turn, each
// with the place that gains most, where a probe wins and none is slower than at the start.
std::vector<size_t> choose(const std::vector<bench::Percentiles>& start,
                           const std::vector<OfProbes>& candidates);

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

// What the measurement of a class came to.
struct Outcome {
  std::vector<Win> wins = {};  // in the order of the table
  double gain = 1;             // over the table before
  bool divided = false;        // other runs are best for a part of its rows
  bool throttled = false;      // the clock was down: nothing is concluded
  bool out_of_memory = false;
  std::optional<std::string> wrong = {};  // a run, and what was wrong with its result
};

// Measures classes of rows on the current GPU. The plugin's table is the start's again afterwards.
class Meter {
 public:
  // `rough` times every candidate, `fine` those that may win and what they must beat.
  Meter(Tuning start, const RowLimits& limits, c10::Device device, bench::Timer& rough,
        bench::Timer& fine);

  Outcome measure(const RowClass& c);

 private:
  struct Probe {
    bench::Case c;
    int64_t sets;
    bench::Variant variant;
  };

  // The variant's calls on some of its inputs under a table, which they set where another is in
  // use.
  bench::Work under(const Probe& probe, const std::string& table, int64_t first, int64_t sets);
  void use(const std::string& table);
  bool runs(const Probe& probe, const TuningEntry& run);
  std::vector<bench::Timing> time(bench::Timer& timer, const Probe& probe,
                                  const std::vector<TuningEntry>& candidates,
                                  const std::vector<size_t>& chosen);
  // The candidates that are worth to be timed again, and those that run each of the probes.
  std::vector<size_t> finalists_of(const std::vector<Probe>& probes,
                                   const std::vector<TuningEntry>& candidates,
                                   std::vector<std::vector<size_t>>& running);
  std::optional<std::string> fault_of(const Probe& probe, const TuningEntry& run);

  Tuning start_;
  std::string start_text_;
  std::string in_use_;
  RowLimits limits_;
  c10::Device device_;
  bench::Timer& rough_;
  bench::Timer& fine_;
};

}  // namespace warpfuse::host::tune
