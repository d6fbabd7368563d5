#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/errors.h"

namespace warpfuse::host {

std::optional<int64_t> argmax(const std::vector<double>& logits) {
  if (std::any_of(logits.begin(), logits.end(), [](double logit) { return std::isnan(logit); })) {
    return std::nullopt;
  }
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

double uniform(uint64_t seed, uint64_t step) {
  uint64_t z = seed + (step + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

int64_t Sampler::operator()(const std::vector<double>& logits) {
  const std::optional<int64_t> best = argmax(logits);
  if (!best) fail(ExitCode::model, "the model gave a NaN logit at step {}", step_);
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
    std::sort(ids.begin(),
              ids.end());  // nth_element's order is the library's own; ids give one for all
  }
  std::vector<double> cumulative;
  cumulative.reserve(ids.size());
  double sum = 0.0;
  for (const int64_t id : ids) {
    sum += std::exp((logits[id] - logits[best]) / options_.temperature);
    cumulative.push_back(sum);
  }
  const double target = uniform(options_.seed, step_) * sum;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  // Rounding can make the target reach the sum itself.
  return chosen == cumulative.end() ? best : ids[chosen - cumulative.begin()];
}

}  // namespace warpfuse::host
