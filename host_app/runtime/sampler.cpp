#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/errors.h"

namespace warpfuse::host {

std::optional<int64_t> argmax(const std::vector<double>& logits) {
  if (std::ranges::any_of(logits, [](double logit) { return std::isnan(logit); })) {
    return std::nullopt;
  }
  return std::ranges::max_element(logits) - logits.begin();
}

double uniform(uint64_t seed, uint64_t step) {
  uint64_t z = seed + (step + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  z ^= z >> 31U;
  return static_cast<double>(z >> 11U) * 0x1p-53;
}

int64_t Sampler::operator()(const std::vector<double>& logits) {
  const std::optional<int64_t> best = argmax(logits);
  if (!best) {
    fail(ExitCode::model, "the model gave a NaN logit at step {}", step_);
  }
  const int64_t token = options_.temperature == 0.0 ? *best : draw(logits, *best);
  ++step_;
  return token;
}

int64_t Sampler::draw(const std::vector<double>& logits, int64_t best) {
  const auto size = static_cast<int64_t>(logits.size());
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  if (options_.top_k > 0 && options_.top_k < size) {
    std::nth_element(ids.begin(), ids.begin() + options_.top_k - 1, ids.end(),
                     [&](int64_t a, int64_t b) {
                       return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                     });
    ids.resize(options_.top_k);
    // nth_element's order is the library's own; that of the ids is one for all.
    std::ranges::sort(ids);
  }
  std::vector<double> cumulative;
  cumulative.reserve(ids.size());
  double sum = 0.0;
  for (const int64_t id : ids) {
    sum += std::exp((logits[id] - logits[best]) / options_.temperature);
    cumulative.push_back(sum);
  }
  const double target = uniform(options_.seed, step_) * sum;
  const auto chosen = std::ranges::upper_bound(cumulative, target);
  // Rounding can make the target reach the sum itself.
  return chosen == cumulative.end() ? best : ids[chosen - cumulative.begin()];
}

}  // namespace warpfuse::host
