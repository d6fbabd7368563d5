#include "tune/measure.h"

#include <cmath>
#include <ranges>

#include "bench/check.h"
#include "runtime/load/plugin.h"
#include "tune/candidates.h"
#include "tune/probes.h"

namespace warpfuse::host::tune {
namespace {

constexpr double kMinGain = 0.01;
constexpr double kMaxLoss = 0.005;
constexpr double kMinGainOfPart = 0.02;
constexpr size_t kMaxLines = 3;  // of a class: rows that are aligned, or not, or have other masks

using bench::Percentiles;
using bench::Timing;

double noise(const Percentiles& time) { return (time.p95 - time.p5) / 2; }

// Whether one of the times wins or loses.
bool any(const std::vector<Percentiles>& times,
         bool (*than)(const Percentiles&, const Percentiles&),
         const std::vector<Percentiles>& before) {
  return !std::ranges::equal(times, before, std::not_fn(than));
}

// Candidates of a probe that are timed again: of those that were faster than the start at all, up
// to so many that took little more than the fastest.
constexpr size_t kFinalists = 3;
constexpr double kFinalistShare = 1.05;
// A candidate that takes longer than the fastest on the first probe by this is timed on no other.
constexpr double kOutOfReach = 1.5;
// Inputs of a sample, at least, of few short rows: a round of all candidates goes through all
// inputs, so that none is in the cache when its turn comes again.
constexpr int64_t kRoughSets = 64, kFineSets = 256;
// Of a candidate that could not be timed again: it loses.
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Percentiles kNever{kInfinity, kInfinity, kInfinity};

}  // namespace

bool wins(const bench::Percentiles& time, const bench::Percentiles& before) {
  return before.p50 - time.p50 > std::max({kMinGain * before.p50, noise(time), noise(before)});
}

bool loses(const bench::Percentiles& time, const bench::Percentiles& before) {
  return time.p50 > (1 + kMaxLoss) * before.p50;
}

std::vector<Percentiles> times_of(const std::vector<size_t>& lines,
                                  const std::vector<Percentiles>& start,
                                  const std::vector<OfProbes>& candidates) {
  std::vector<Percentiles> times = start;
  for (size_t probe = 0; probe < times.size(); ++probe) {
    const auto taker =
        std::ranges::find_if(lines, [&](size_t i) { return candidates[i][probe].has_value(); });
    if (taker != lines.end()) {
      times[probe] = *candidates[*taker][probe];
    }
  }
  return times;
}

double gain_of(const std::vector<Percentiles>& before, const std::vector<Percentiles>& after) {
  double logarithm = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    logarithm += std::log(before[i].p50 / after[i].p50);
  }
  return before.empty() ? 1 : std::exp(logarithm / static_cast<double>(before.size()));
}

std::vector<size_t> choose(const std::vector<Percentiles>& start,
                           const std::vector<OfProbes>& candidates) {
  std::vector<size_t> chosen;
  while (chosen.size() < kMaxLines) {
    const std::vector<Percentiles> now = times_of(chosen, start, candidates);
    std::vector<size_t> best;
    double most = 1;
    for (size_t i = 0; i < candidates.size(); ++i) {
      for (size_t place = 0; place <= chosen.size(); ++place) {
        std::vector<size_t> lines = chosen;
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(place), i);
        const std::vector<Percentiles> times = times_of(lines, start, candidates);
        const double gain = gain_of(now, times);
        if (gain > most && any(times, wins, now) && !any(times, loses, start)) {
          best = std::move(lines);
          most = gain;
        }
      }
    }
    if (best.empty()) {
      break;
    }
    chosen = std::move(best);
  }
  return chosen;
}

bool divided(const std::vector<Percentiles>& start, const std::vector<OfProbes>& candidates,
             const std::vector<size_t>& chosen) {
  const std::vector<Percentiles> now = times_of(chosen, start, candidates);
  return std::ranges::any_of(candidates, [&](const OfProbes& candidate) {
    return std::ranges::any_of(std::views::iota(size_t{0}, now.size()), [&](size_t probe) {
      const auto& time = candidate[probe];
      return time && wins(*time, now[probe]) && time->p50 < (1 - kMinGainOfPart) * now[probe].p50;
    });
  });
}

double seconds_left(const Budget& budget, double elapsed, size_t done, size_t all) {
  const double rest = budget.seconds - elapsed;
  return std::max(0.0, done == 0 ? rest
                                 : std::min(rest, elapsed / static_cast<double>(done) *
                                                      static_cast<double>(all - done)));
}

Meter::Meter(Tuning start, const RowLimits& limits, c10::Device device, bench::Timer& rough,
             bench::Timer& fine)
    : start_(std::move(start)),
      start_text_(start_.to_string()),
      limits_(limits),
      device_(device),
      rough_(rough),
      fine_(fine) {}

void Meter::use(const std::string& table) {
  if (table != in_use_) {
    set_tuning(table, "of a candidate");
    in_use_ = table;
  }
}

bench::Work Meter::under(const Probe& probe, const std::string& table, int64_t first,
                         int64_t sets) {
  return {[this, &probe, table, first](int64_t i) {
            use(table);
            return probe.variant.call((first + i) % probe.sets).result;
          },
          sets};
}

// Whether the candidate's kernel takes the probe's rows: else they went on to the last line.
bool Meter::runs(const Probe& probe, const TuningEntry& run) {
  use(table_of(run, start_));
  const bench::Json launches = launches_during([&] { probe.variant.call(0); });
  return std::ranges::any_of(launches, [&](const bench::Json& launch) {
    return launch["tier"] == to_string(run.tier) && launch["threads"] == run.threads &&
           (run.tier == Tier::warp || run.tier == Tier::chunk ||
            launch["lane_packs"] == run.lane_packs) &&
           launch["cluster"] == (run.tier == Tier::cluster || run.tier == Tier::column
                                     ? std::max(run.blocks, 1)
                                     : 1);
  });
}

// The start's timing, then those of the chosen candidates.
std::vector<Timing> Meter::time(bench::Timer& timer, const Probe& probe,
                                const std::vector<TuningEntry>& candidates,
                                const std::vector<size_t>& chosen) {
  const auto number = static_cast<int64_t>(chosen.size()) + 1;
  const int64_t share = (probe.sets + number - 1) / number;
  const int64_t sets =
      std::min(std::max(share, &timer == &rough_ ? kRoughSets : kFineSets), probe.sets);
  std::vector<bench::Work> works{under(probe, start_text_, 0, sets)};
  for (const size_t i : chosen) {
    const int64_t first = static_cast<int64_t>(works.size()) * sets % probe.sets;
    works.push_back(under(probe, table_of(candidates[i], start_), first, sets));
  }
  return timer.time(works);
}

std::optional<std::string> Meter::fault_of(const Probe& probe, const TuningEntry& run) {
  use(table_of(run, start_));
  const bench::Checked checked = bench::check(
      probe.variant, [&](const std::function<void()>& call) { return fine_.peak_bytes(call); });
  return checked.status == bench::Checked::Status::ok
             ? std::nullopt
             : std::optional(
                   fmt::format("{}, {}: {}", text_of(probe.c), run_text(run), checked.reason));
}

std::vector<size_t> Meter::finalists_of(const std::vector<Probe>& probes,
                                        const std::vector<TuningEntry>& candidates,
                                        std::vector<std::vector<size_t>>& running) {
  std::set<size_t> found;
  std::vector<bool> out_of_reach(candidates.size());
  for (const Probe& probe : probes) {
    std::vector<size_t>& own = running.emplace_back();
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!out_of_reach[i] && runs(probe, candidates[i])) {
        own.push_back(i);
      }
    }
    const std::vector<Timing> timings = time(rough_, probe, candidates, own);
    const double start = timings[0].call.p50;
    std::vector<std::pair<double, size_t>> timed;
    for (size_t k = 0; k < own.size(); ++k) {
      if (timings[k + 1].failure.empty()) {
        timed.emplace_back(timings[k + 1].call.p50, own[k]);
      }
    }
    std::ranges::sort(timed);
    for (size_t k = 0; k < timed.size(); ++k) {
      const auto& [us, i] = timed[k];
      const double fastest = timed.front().first;
      out_of_reach[i] = &probe == &probes.front() && us > kOutOfReach * fastest;
      if (k < kFinalists && us < start && us < kFinalistShare * fastest) {
        found.insert(i);
      }
    }
  }
  return {found.begin(), found.end()};
}

Outcome Meter::measure(const RowClass& c) {
  Outcome outcome;
  try {
    use(start_text_);
    std::vector<Probe> probes;
    for (const bench::Case& row : probes_of(c, limits_.multiprocessors)) {
      const int64_t sets = fine_.sets_for(row.op->bytes(row).inputs);
      auto variants = row.op->variants(row, {.device = device_, .sets = sets});
      probes.push_back({row, sets, std::move(variants.front())});
    }
    const std::vector<TuningEntry> candidates = candidates_of(c, limits_);
    std::vector<std::vector<size_t>> running;
    const std::vector<size_t> finalists = finalists_of(probes, candidates, running);
    std::vector<Percentiles> before;
    std::vector<OfProbes> of_finalists(finalists.size(), OfProbes(probes.size()));
    for (size_t p = 0; p < probes.size() && !finalists.empty(); ++p) {
      std::vector<size_t> own;
      std::ranges::set_intersection(finalists, running[p], std::back_inserter(own));
      const std::vector<Timing> timings = time(fine_, probes[p], candidates, own);
      outcome.throttled = outcome.throttled || std::ranges::any_of(timings, &Timing::throttled);
      before.push_back(timings[0].call);
      for (size_t k = 0; k < own.size(); ++k) {
        const auto at = std::ranges::find(finalists, own[k]) - finalists.begin();
        const bool timed = timings[k + 1].failure.empty();
        of_finalists[static_cast<size_t>(at)][p] = timed ? timings[k + 1].call : kNever;
      }
    }
    if (finalists.empty() || outcome.throttled) {
      use(start_text_);
      return outcome;
    }
    const std::vector<size_t> best = choose(before, of_finalists);
    outcome.divided = divided(before, of_finalists, best);
    for (const size_t chosen : best) {
      const TuningEntry& run = candidates[finalists[chosen]];
      for (size_t p = 0; p < probes.size() && !outcome.wrong; ++p) {
        if (of_finalists[chosen][p]) {
          outcome.wrong = fault_of(probes[p], run);
        }
      }
      outcome.wins.push_back({c, run});
    }
    outcome.gain = gain_of(before, times_of(best, before, of_finalists));
    if (outcome.wrong) {
      outcome.wins.clear();
    }
    use(start_text_);
  } catch (...) {
    in_use_.clear();  // whatever it was
    if (!is_out_of_memory(std::current_exception())) {
      throw;
    }
    outcome = {.out_of_memory = true};
  }
  rough_.release_memory();
  return outcome;
}

}  // namespace warpfuse::host::tune
