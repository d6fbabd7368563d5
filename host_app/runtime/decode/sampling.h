#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
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

// The choices of sampled tokens, with their rows of score_choices where `scores` is defined.
std::vector<Choice> read_choices(const std::vector<int64_t>& tokens, const at::Tensor& scores);

// Integers on a device. A GPU fetches them when it has done what was launched before; nobody waits,
// and libtorch keeps the pinned memory for so long.
inline at::Tensor to_device(const std::vector<int64_t>& values, c10::Device device) {
  const at::Tensor staged = at::empty({static_cast<int64_t>(values.size())},
                                      at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  std::ranges::copy(values, staged.mutable_data_ptr<int64_t>());
  return staged.to(device, /*non_blocking=*/true);
}

// How the tokens of one sequence among others are drawn.
struct DrawRules {
  Sampling sampling;
  int64_t stream = 0;   // its random stream, in place of the sequence's name
  bool scored = false;  // where DecodeOptions::top_logprobs is given
};

// How the rows of a batch are drawn: rows that sample alike by one call of sample_tokens.
class RowDraws {
 public:
  // Rows without rules are not in use: what is drawn for them has no meaning.
  RowDraws(const std::vector<std::optional<DrawRules>>& rows, c10::Device device);

  bool greedy() const;
  bool scored() const { return scored_.defined(); }

  // Tokens i64[B] by logits [B, V], where B may leave out rows not in use at the end. `draws` and
  // `names` are i64[B], or `draws` one element.
  at::Tensor tokens(const at::Tensor& logits, const at::Tensor& draws,
                    const at::Tensor& names) const;
  // score_choices() of the rows that are scored, into their rows of `scores`.
  void score(const at::Tensor& logits, const at::Tensor& tokens, int64_t count,
             const at::Tensor& scores) const;

 private:
  std::vector<std::pair<Sampling, at::Tensor>> groups_;
  at::Tensor scored_;  // i64, the rows
  bool all_scored_ = false;
};

// A sequence to continue. Its name selects its random stream, so that samples depend on neither row
// nor batch.
struct Sequence {
  int64_t name;  // at least 0, unique among the running ones
  std::span<const int64_t> ids;
  int64_t tokens;              // to sample at most; the last one needs no room in the context
  DrawRules draw = {};         // where DecodeOptions::mixed
  bool prompt_scored = false;  // the log-probabilities of its ids, where it enters by pieces
};

}  // namespace warpfuse::host
