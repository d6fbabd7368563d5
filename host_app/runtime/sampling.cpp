#include "runtime/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/topk.h>
#include <warpfuse/fused_logprob.h>

namespace warpfuse::host {

at::Tensor score_choices(const at::Tensor& logits, const at::Tensor& tokens, int64_t likeliest) {
  // -1, of logits with a NaN in them, is no target: the row's scores are NaN whatever is asked.
  const auto [logprob, lse] = fused_logprob_lse(logits, tokens.clamp_min(0));
  const auto [best, ids] = at::topk(logits, likeliest);
  // Ids are exact in float32: a vocabulary has fewer than 2^24 tokens.
  return at::cat({logprob.unsqueeze(1).to(at::kFloat),
                  best.to(at::kFloat) - lse.unsqueeze(1).to(at::kFloat), ids.to(at::kFloat)},
                 1);
}

std::vector<Choice> read_choices(const at::Tensor& scores, const std::vector<int64_t>& tokens) {
  const at::Tensor values = scores.to(at::kCPU).contiguous();
  const int64_t columns = values.size(1);
  const int64_t likeliest = (columns - 1) / 2;
  const auto* row = values.const_data_ptr<float>();
  std::vector<Choice> choices;
  choices.reserve(tokens.size());
  for (const int64_t token : tokens) {
    Choice choice{.id = token, .logprob = row[0], .likeliest = {}};
    for (int64_t i = 1; i <= likeliest; ++i) {
      choice.likeliest.push_back(
          {.id = static_cast<int64_t>(row[i + likeliest]), .logprob = row[i]});
    }
    choices.push_back(std::move(choice));
    row += columns;
  }
  return choices;
}

}  // namespace warpfuse::host
