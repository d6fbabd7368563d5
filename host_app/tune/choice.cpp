#include "tune/choice.h"

#include <algorithm>
#include <cmath>

namespace warpfuse::host::tune {
namespace {

constexpr double kMinGain = 0.01;
constexpr double kMaxLoss = 0.005;
constexpr double kMinGainOfPart = 0.02;
constexpr size_t kMaxLines = 3;  // of a class: rows that are aligned, or not, or have other masks

double noise(const bench::Percentiles& time) { return (time.p95 - time.p5) / 2; }

}  // namespace

bool wins(const bench::Percentiles& time, const bench::Percentiles& before) {
  return before.p50 - time.p50 > std::max({kMinGain * before.p50, noise(time), noise(before)});
}

bool loses(const bench::Percentiles& time, const bench::Percentiles& before) {
  return time.p50 > (1 + kMaxLoss) * before.p50;
}

double gain_of(const std::vector<bench::Percentiles>& start, const OfProbes& candidate) {
  double logarithm = 0;
  int count = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    if (const auto& time = candidate[i]) {
      logarithm += std::log(start[i].p50 / time->p50);
      ++count;
    }
  }
  return count == 0 ? 1 : std::exp(logarithm / count);
}

std::vector<size_t> choose(const std::vector<bench::Percentiles>& start,
                           const std::vector<OfProbes>& candidates) {
  std::vector<bench::Percentiles> now = start;
  std::vector<size_t> chosen;
  while (chosen.size() < kMaxLines) {
    std::optional<size_t> best;
    double most = 1;
    for (size_t i = 0; i < candidates.size(); ++i) {
      bool won = false;
      bool lost = std::ranges::find(chosen, i) != chosen.end();
      for (size_t probe = 0; probe < now.size(); ++probe) {
        if (const auto& time = candidates[i][probe]) {
          won = won || wins(*time, now[probe]);
          lost = lost || loses(*time, now[probe]);
        }
      }
      const double gain = gain_of(now, candidates[i]);
      if (won && !lost && gain > most) {
        best = i;
        most = gain;
      }
    }
    if (!best) {
      break;
    }
    chosen.insert(chosen.begin(), *best);
    for (size_t probe = 0; probe < now.size(); ++probe) {
      now[probe] = candidates[*best][probe].value_or(now[probe]);
    }
  }
  return chosen;
}

bool divided(const std::vector<bench::Percentiles>& start, const std::vector<OfProbes>& candidates,
             const std::vector<size_t>& chosen) {
  for (size_t probe = 0; probe < start.size(); ++probe) {
    bench::Percentiles now = start[probe];
    const auto taker =
        std::ranges::find_if(chosen, [&](size_t i) { return candidates[i][probe].has_value(); });
    if (taker != chosen.end()) {
      now = candidates[*taker][probe].value_or(now);
    }
    for (const OfProbes& candidate : candidates) {
      const auto& time = candidate[probe];
      if (time && wins(*time, now) && time->p50 < (1 - kMinGainOfPart) * now.p50) {
        return true;
      }
    }
  }
  return false;
}

double seconds_left(const Budget& budget, double elapsed, size_t done, size_t all) {
  const double rest = budget.seconds - elapsed;
  return std::max(0.0, done == 0 ? rest
                                 : std::min(rest, elapsed / static_cast<double>(done) *
                                                      static_cast<double>(all - done)));
}

}  // namespace warpfuse::host::tune
