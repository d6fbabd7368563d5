#include "runtime/decode/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <warpfuse/fused_logprob.h>
#include <warpfuse/sample_tokens.h>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

at::Tensor sample(const Sampling& how, const at::Tensor& logits, const at::Tensor& draws,
                  const at::Tensor& names) {
  return translating_errors(ExitCode::model, "sample_tokens", [&] {
    return sample_tokens(logits, draws, how.seed, how.temperature, how.top_k, how.top_p, how.min_p,
                         names);
  });
}

}  // namespace

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

std::vector<Choice> read_choices(const std::vector<int64_t>& tokens, const at::Tensor& scores) {
  std::vector<Choice> choices(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    choices[i].id = tokens[i];
  }
  if (!scores.defined()) {
    return choices;
  }
  const at::Tensor values = scores.to(at::kCPU).contiguous();
  const int64_t columns = values.size(1);
  const int64_t count = (columns - 1) / 2;
  const auto* row = values.const_data_ptr<float>();
  for (Choice& choice : choices) {
    choice.logprob = row[0];
    for (int64_t i = 1; i <= count; ++i) {
      choice.top_logprobs.push_back(
          {.id = static_cast<int64_t>(row[i + count]), .logprob = row[i]});
    }
    row += columns;
  }
  return choices;
}

RowDraws::RowDraws(const std::vector<std::optional<DrawRules>>& rows, c10::Device device) {
  std::vector<std::pair<Sampling, std::vector<int64_t>>> groups;
  std::vector<int64_t> scored;
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::optional<DrawRules>& rules = rows[row];
    if (!rules) {
      continue;
    }
    // Greedy rows are drawn together, whatever else they ask for.
    const Sampling how = rules->sampling.temperature == 0 ? Sampling{} : rules->sampling;
    auto group = std::ranges::find(groups, how, [](const auto& each) { return each.first; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {how, {}});
    }
    group->second.push_back(static_cast<int64_t>(row));
    if (rules->scored) {
      scored.push_back(static_cast<int64_t>(row));
    }
  }
  for (const auto& [how, members] : groups) {
    groups_.emplace_back(how, groups.size() == 1 ? at::Tensor() : to_device(members, device));
  }
  if (!scored.empty()) {
    all_scored_ = scored.size() == rows.size();
    scored_ = to_device(scored, device);
  }
}

bool RowDraws::greedy() const {
  return std::ranges::all_of(groups_, [](const auto& each) { return each.first.temperature == 0; });
}

at::Tensor RowDraws::tokens(const at::Tensor& logits, const at::Tensor& draws,
                            const at::Tensor& names) const {
  if (groups_.size() == 1) {
    return sample(groups_.front().first, logits, draws, names);
  }
  at::Tensor tokens = at::zeros({logits.size(0)}, names.options());
  for (const auto& [how, rows] : groups_) {
    const at::Tensor theirs = draws.numel() == 1 ? draws : draws.index_select(0, rows);
    tokens.index_copy_(
        0, rows, sample(how, logits.index_select(0, rows), theirs, names.index_select(0, rows)));
  }
  return tokens;
}

void RowDraws::score(const at::Tensor& logits, const at::Tensor& tokens, int64_t count,
                     const at::Tensor& scores) const {
  if (all_scored_) {
    scores.narrow(0, 0, logits.size(0)).copy_(score_choices(logits, tokens, count));
  } else if (scored()) {
    scores.index_copy_(
        0, scored_,
        score_choices(logits.index_select(0, scored_), tokens.index_select(0, scored_), count));
  }
}

}  // namespace warpfuse::host
