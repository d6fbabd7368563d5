#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/decode/sampling.h"

namespace warpfuse::host {

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

}  // namespace warpfuse::host
