#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace warpfuse::host {

struct SamplingOptions {
  double temperature = 0.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all tokens
  uint64_t seed = 0;
};

// The token with the largest logit, the lowest id among equals; empty when a logit is NaN.
std::optional<int64_t> argmax(const std::vector<double>& logits);

// Uniform in [0, 1) from a counter (SplitMix64): step i gives the same number whatever ran before
// it.
double uniform(uint64_t seed, uint64_t step);

// Picks tokens on the CPU in double precision, so that equal logits give equal tokens on every
// device.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // Throws Error(model) when a logit is NaN.
  int64_t operator()(const std::vector<double>& logits);

 private:
  int64_t draw(const std::vector<double>& logits, int64_t best);

  SamplingOptions options_;
  uint64_t step_ = 0;
};

}  // namespace warpfuse::host
