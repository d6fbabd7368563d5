#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace warpfuse::host {

// The arguments of warpfuse::sample_tokens.
struct Sampling {
  double temperature = 0.0;  // 0: the most probable token, whatever the others say
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
  int64_t seed = 0;

  bool operator==(const Sampling&) const = default;
};

// Log-probability in the model's own distribution, before temperature and cuts.
struct ScoredToken {
  int64_t id;
  double logprob;
};

// The sampled token, and the most probable ones, best first.
struct Choice {
  int64_t id = 0;
  double logprob = 0;
  std::vector<ScoredToken> top_logprobs;
};

// Scores of sampled tokens [B] by logits [B, V], on the logits' device: float32 [B, 1 + 2 n], the
// token's log-probability, then the log-probabilities and the ids of the n most probable tokens.
at::Tensor score_choices(const at::Tensor& logits, const at::Tensor& tokens, int64_t count);
constexpr int64_t score_columns(int64_t count) { return 1 + 2 * count; }

// Unpacks rows of score_choices, on the CPU, for their tokens.
std::vector<Choice> read_choices(const at::Tensor& scores, const std::vector<int64_t>& tokens);

}  // namespace warpfuse::host
