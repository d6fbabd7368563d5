#pragma once

#include "bench/timer.h"
#include "tune/choice.h"
#include "tune/merge.h"

namespace warpfuse::host::tune {

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
  // What is wrong with the results; a kernel is checked once on rows of one kind.
  std::optional<std::string> fault_of(const Probe& probe, const TuningEntry& run);

  Tuning start_;
  std::string start_text_;
  std::string in_use_;
  std::set<std::string> right_;  // kernels whose results were checked, by the rows they ran
  RowLimits limits_;
  c10::Device device_;
  bench::Timer& rough_;
  bench::Timer& fine_;
};

}  // namespace warpfuse::host::tune
