#include "runtime/decode/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/topk.h>
#include <warpfuse/fused_logprob.h>

namespace warpfuse::host {

at::Tensor score_choices(const at::Tensor& logits, const at::Tensor& tokens, int64_t count) {
  // -1, of logits with a NaN in them, is no target: the row's scores are NaN whatever is asked.
  const at::Tensor targets = tokens.clamp_min(0);
  const at::Tensor logprob = fused_logprob(logits, targets).unsqueeze(1).to(at::kFloat);
  const at::Tensor target_logits = logits.gather(1, targets.unsqueeze(1)).to(at::kFloat);
  const auto [best, ids] = at::topk(logits, count);
  // Counted from the token that was picked, so that it has one log-probability wherever it stands.
  // Ids are exact in float32: a vocabulary has fewer than 2^24 tokens.
  return at::cat({logprob, best.to(at::kFloat) - target_logits + logprob, ids.to(at::kFloat)}, 1);
}

std::vector<Choice> read_choices(const at::Tensor& scores, const std::vector<int64_t>& tokens) {
  const at::Tensor values = scores.to(at::kCPU).contiguous();
  const int64_t columns = values.size(1);
  const int64_t count = (columns - 1) / 2;
  const auto* row = values.const_data_ptr<float>();
  std::vector<Choice> choices;
  choices.reserve(tokens.size());
  for (const int64_t token : tokens) {
    Choice choice{.id = token, .logprob = row[0], .top_logprobs = {}};
    for (int64_t i = 1; i <= count; ++i) {
      choice.top_logprobs.push_back(
          {.id = static_cast<int64_t>(row[i + count]), .logprob = row[i]});
    }
    choices.push_back(std::move(choice));
    row += columns;
  }
  return choices;
}

}  // namespace warpfuse::host
