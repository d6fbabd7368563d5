#include "tune/choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>

namespace warpfuse::host::tune {
namespace {

constexpr double kMinGain = 0.01;
constexpr double kMinGainOfPart = 0.02;
constexpr double kOutOfReach = 1.4;
constexpr size_t kMaxLines = 3;  // of a class: rows that are aligned, or not, or have other masks

using bench::Percentiles;

double noise(const Percentiles& time) { return (time.p95 - time.p5) / 2; }

Stake stake_of(const std::vector<Stake>& stakes, size_t probe) {
  return stakes.empty() ? Stake{} : stakes[probe];
}

bool any_wins(const std::vector<Percentiles>& times, const std::vector<Percentiles>& before) {
  return !std::ranges::equal(times, before, std::not_fn(wins));
}

// Whether a line takes probes that those before it do not.
bool takes_more(const OfProbes& candidate, const std::vector<size_t>& lines,
                const std::vector<OfProbes>& candidates) {
  for (size_t probe = 0; probe < candidate.size(); ++probe) {
    if (candidate[probe] && !taker_of(lines, candidates, probe)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool wins(const bench::Percentiles& time, const bench::Percentiles& before) {
  return before.p50 - time.p50 > std::max({kMinGain * before.p50, noise(time), noise(before)});
}

std::optional<size_t> taker_of(const std::vector<size_t>& lines,
                               const std::vector<OfProbes>& candidates, size_t probe) {
  const auto taker =
      std::ranges::find_if(lines, [&](size_t i) { return candidates[i][probe].has_value(); });
  return taker == lines.end() ? std::nullopt : std::optional(*taker);
}

std::vector<Percentiles> times_of(const std::vector<size_t>& lines,
                                  const std::vector<Percentiles>& start,
                                  const std::vector<OfProbes>& candidates) {
  std::vector<Percentiles> times = start;
  for (size_t probe = 0; probe < times.size(); ++probe) {
    if (const auto taker = taker_of(lines, candidates, probe)) {
      times[probe] = candidates[*taker][probe].value_or(times[probe]);
    }
  }
  return times;
}

double gain_of(const std::vector<Percentiles>& before, const std::vector<Percentiles>& after,
               const std::vector<Stake>& stakes) {
  double logarithm = 0, weights = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double weight = stake_of(stakes, i).weight;
    logarithm += weight * std::log(before[i].p50 / after[i].p50);
    weights += weight;
  }
  return std::exp(logarithm / weights);
}

std::vector<size_t> choose(const std::vector<Percentiles>& start,
                           const std::vector<OfProbes>& candidates,
                           const std::vector<Stake>& stakes) {
  const auto loses = [&](const std::vector<Percentiles>& times) {
    for (size_t i = 0; i < times.size(); ++i) {
      if (times[i].p50 > (1 + stake_of(stakes, i).max_loss) * start[i].p50) {
        return true;
      }
    }
    return false;
  };
  std::vector<size_t> chosen;
  std::vector<std::vector<size_t>> shorter{{}};
  for (size_t length = 1; length <= kMaxLines; ++length) {
    const std::vector<Percentiles> now = times_of(chosen, start, candidates);
    std::vector<std::vector<size_t>> all;
    std::vector<size_t> best;
    double most = 1;
    for (const std::vector<size_t>& lines : shorter) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (!takes_more(candidates[i], lines, candidates)) {
          continue;
        }
        all.push_back(lines);
        all.back().push_back(i);
        const std::vector<Percentiles> times = times_of(all.back(), start, candidates);
        const double gain = gain_of(now, times, stakes);
        if (gain > most && any_wins(times, now) && !loses(times)) {
          best = all.back();
          most = gain;
        }
      }
    }
    chosen = best.empty() ? chosen : best;
    shorter = std::move(all);
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

bool Reach::has(size_t candidate, bool aligned) const {
  return least_shares_[candidate].at(aligned ? 1 : 0).value_or(0) <= kOutOfReach;
}

void Reach::add(size_t candidate, bool aligned, double share) {
  std::optional<double>& least = least_shares_[candidate].at(aligned ? 1 : 0);
  least = std::min(least.value_or(share), share);
}

double seconds_left(const Budget& budget, double elapsed, size_t done, size_t all) {
  const double rest = budget.seconds - elapsed;
  return std::max(0.0, done == 0 ? rest
                                 : std::min(rest, elapsed / static_cast<double>(done) *
                                                      static_cast<double>(all - done)));
}

}  // namespace warpfuse::host::tune
