#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "failure_of.h"
#include "runtime/sampler.h"
#include "support/catch.h"

using warpfuse::host::argmax;
using warpfuse::host::Sampler;
using warpfuse::host::uniform;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("greedy takes the largest logit, the lowest id among equals", "[sampler]") {
  CHECK(argmax({1.0, 3.0, 3.0, 2.0}) == 1);
  CHECK(argmax({-kInfinity, -5.0}) == 1);
  CHECK_FALSE(argmax({1.0, kNaN}).has_value());
  CHECK(Sampler({})({0.5, 0.7, 0.6}) == 1);
}

TEST_CASE("NaN logits are an error of the model", "[sampler]") {
  CHECK(failure_of([] { Sampler({})({0.0, kNaN}); }) == "3: the model gave a NaN logit at step 0");
}

TEST_CASE("the generator gives SplitMix64's published numbers", "[sampler]") {
  // Seed 1234567: 6457827717110365317, 3203168211198807973, 9817491932198370423.
  CHECK(uniform(1234567, 0) == static_cast<double>(6457827717110365317ULL >> 11) * 0x1p-53);
  CHECK(uniform(1234567, 1) == static_cast<double>(3203168211198807973ULL >> 11) * 0x1p-53);
  CHECK(uniform(1234567, 2) == static_cast<double>(9817491932198370423ULL >> 11) * 0x1p-53);
}

TEST_CASE("tokens come as often as softmax says", "[sampler]") {
  const std::vector<double> logits{0.0, 1.0, -kInfinity, 2.0};
  const double temperature = 0.7;
  Sampler sampler({.temperature = temperature, .top_k = 0, .seed = 5});
  constexpr int kDraws = 20000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(sampler(logits))];
  }
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit / temperature);
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] / temperature) / sum;
    const double four_sigma = 4 * std::sqrt(p * (1 - p) * kDraws);
    CHECK(std::abs(counts[i] - p * kDraws) <= four_sigma);
  }
}

TEST_CASE("top-k leaves the k likeliest, ties to the lower id", "[sampler]") {
  Sampler sampler({.temperature = 100.0, .top_k = 2, .seed = 1});
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) {
    seen.insert(sampler({1.0, 3.0, 2.0, 2.0, 0.0}));
  }
  CHECK(seen == std::set<int64_t>{1, 2});
}

TEST_CASE("a seed determines the tokens", "[sampler]") {
  const std::vector<double> logits(1000, 0.0);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .top_k = 0, .seed = seed});
    std::vector<int64_t> tokens;
    for (int i = 0; i < 20; ++i) {
      tokens.push_back(sampler(logits));
    }
    return tokens;
  };
  CHECK(draw(1) == draw(1));
  CHECK(draw(1) != draw(2));
}
