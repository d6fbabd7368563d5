#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace warpfuse::host {

// How warpfuse::sample_tokens picks a token.
struct Sampling {
  double temperature = 0.0;  // 0: the likeliest token, whatever the others say
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
  int64_t seed = 0;
};

// A token's log-probability by the model's own distribution, before temperature and cuts.
struct ScoredToken {
  int64_t id;
  double logprob;
};

// The token that was picked, and the likeliest ones, best first.
struct Choice {
  int64_t id = 0;
  double logprob = 0;
  std::vector<ScoredToken> likeliest;
};

// The scores of tokens [B] that were picked from logits [B, V], on the logits' device: float32
// [B, 1 + 2 n], the log-probability and then those and the ids of the n likeliest tokens.
at::Tensor score_choices(const at::Tensor& logits, const at::Tensor& tokens, int64_t likeliest);
constexpr int64_t score_columns(int64_t likeliest) { return 1 + 2 * likeliest; }

// Rows of score_choices on the CPU, for the tokens they are of.
std::vector<Choice> read_choices(const at::Tensor& scores, const std::vector<int64_t>& tokens);

}  // namespace warpfuse::host
