#include "tune/measure.h"

#include "bench/check.h"
#include "runtime/load/plugin.h"
#include "tune/candidates.h"
#include "tune/probes.h"

namespace warpfuse::host::tune {
namespace {

using bench::Percentiles;
using bench::Timing;

// Of a generic row of a class that has rows of the presets: these decide.
constexpr Stake kBesidePresets{.weight = 0.2, .max_loss = 0.2};

// Candidates of a probe that are timed again: of those that were no slower than the start, up to so
// many that took little more than the fastest.
constexpr size_t kFinalists = 4;
constexpr double kFinalistShare = 1.04, kNoSlower = 1.01;
// Of the start's time: one candidate takes less on a probe, else none is timed again.
constexpr double kFaster = 0.995;
// Inputs of a sample, at least, of few short rows: a round of all candidates goes through all
// inputs, so that none is in the cache when its turn comes again.
constexpr int64_t kRoughSets = 32, kFineSets = 256;
// Of a candidate that could not be timed again: it loses.
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Percentiles kNever{kInfinity, kInfinity, kInfinity};

}  // namespace

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
    if (launch["tier"] == "chunk") {
      return run.tier == Tier::chunk;  // whose form for words has threads of its own
    }
    return launch["tier"] == to_string(run.tier) && launch["threads"] == run.threads &&
           (run.tier == Tier::warp || launch["lane_packs"] == run.lane_packs) &&
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
  const bench::Case& c = probe.c;
  const std::string kernel =
      fmt::format("{} {} {} {} {} {}", c.op->name, c.is_forward(), c10::toString(c.dtype),
                  bench::name_in(bench::kMaskNames, c.mask), is_aligned(c), run_text(run));
  if (right_.contains(kernel)) {
    return std::nullopt;
  }
  use(table_of(run, start_));
  const bench::Checked checked = bench::check(
      probe.variant, [&](const std::function<void()>& call) { return fine_.peak_bytes(call); });
  if (checked.status != bench::Checked::Status::ok) {
    return fmt::format("{}, {}: {}", text_of(c), run_text(run), checked.reason);
  }
  right_.insert(kernel);
  return std::nullopt;
}

std::vector<size_t> Meter::finalists_of(const std::vector<Probe>& probes,
                                        const std::vector<TuningEntry>& candidates,
                                        std::vector<std::vector<size_t>>& running) {
  std::set<size_t> found;
  bool faster = false;
  Reach reach(candidates.size());
  for (const Probe& probe : probes) {
    std::vector<size_t>& own = running.emplace_back();
    const bool aligned = is_aligned(probe.c);
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (reach.has(i, aligned) && runs(probe, candidates[i])) {
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
    faster = faster || (!timed.empty() && timed.front().first < kFaster * start);
    for (size_t k = 0; k < timed.size(); ++k) {
      const auto& [us, i] = timed[k];
      const double share = us / timed.front().first;
      reach.add(i, aligned, share);
      if (k < kFinalists && us < kNoSlower * start && share < kFinalistShare) {
        found.insert(i);
      }
    }
  }
  return faster ? std::vector<size_t>(found.begin(), found.end()) : std::vector<size_t>();
}

Outcome Meter::measure(const RowClass& c) {
  Outcome outcome;
  try {
    use(start_text_);
    std::vector<Probe> probes;
    std::vector<Stake> stakes;
    const std::vector<ProbeRow> rows = probes_of(c, limits_.multiprocessors);
    const bool preset = std::ranges::any_of(rows, &ProbeRow::of_presets);
    for (const auto& [row, of_presets] : rows) {
      const int64_t sets = fine_.sets_for(row.op->bytes(row).inputs);
      auto variants = row.op->variants(row, {.device = device_, .sets = sets});
      probes.push_back({row, sets, std::move(variants.front())});
      stakes.push_back(preset && !of_presets ? kBesidePresets : Stake{});
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
    const std::vector<size_t> best = choose(before, of_finalists, stakes);
    outcome.divided = divided(before, of_finalists, best);
    for (size_t p = 0; p < probes.size() && !outcome.wrong; ++p) {
      if (const auto taker = taker_of(best, of_finalists, p)) {
        outcome.wrong = fault_of(probes[p], candidates[finalists[*taker]]);
      }
    }
    for (const size_t chosen : best) {
      outcome.wins.push_back({c, candidates[finalists[chosen]]});
    }
    outcome.gain = gain_of(before, times_of(best, before, of_finalists), stakes);
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
