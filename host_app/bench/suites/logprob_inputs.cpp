#include "bench/suites/logprob_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

namespace warpfuse::host::bench {
namespace {

void add_logprob_results(LogprobSet& set, const Case& c) {
  std::vector<int64_t> pairs = set.targets.sizes().vec();
  pairs.push_back(2);
  set.saved = {.statistics = at::empty(pairs, set.grad_output.options()),
               .entropy = at::empty_like(set.grad_output)};
  set.log_probs = at::empty_like(set.logits);
  for_each_piece(c.shape, [&](const Part& part) {
    const at::Tensor x = part(set.logits).to(at::kDouble);
    const at::Tensor peak = x.amax(-1, true);
    const at::Tensor rest = (x - peak).exp().sum(-1, true).log();
    const at::Tensor log_p = x - (peak + rest);
    column(part, set.saved.statistics.select(-1, 0)).copy_(peak);
    column(part, set.saved.statistics.select(-1, 1)).copy_(rest);
    column(part, set.saved.entropy).copy_((log_p.exp() * log_p).sum(-1, true).neg());
    part(set.log_probs).copy_(log_p);
  });
}

}  // namespace

Sets<LogprobSet> make_logprob_inputs(const Case& c, const Setup& setup, std::string_view form) {
  const at::TensorOptions options = options_of(c, setup);
  Sets<LogprobSet> sets = make_sets<LogprobSet>(setup);
  add_tensors(*sets, &LogprobSet::logits, c.shape.sizes, options, setup.scores);
  const std::vector<int64_t> leading(c.shape.sizes.begin(), c.shape.sizes.end() - 1);
  for (LogprobSet& set : *sets) {
    set.form = form;
    set.targets = at::randint(c.shape.columns(), leading, options.dtype(at::kLong));
    if (c.direction == Direction::forward) {
      continue;
    }
    // Representable in the dtype, so that all variants are given the same gradient.
    set.grad_rounded = at::randn(leading, options);
    set.grad_negated = -set.grad_rounded;
    set.grad_output = set.grad_rounded.to(c.sum_dtype());
    set.second_rounded = at::randn(leading, options);
    set.grad_second = set.second_rounded.to(c.sum_dtype());
    set.total_weight = at::empty({}, options).fill_(static_cast<double>(set.targets.numel()));
    if (c.direction == Direction::backward) {
      add_logprob_results(set, c);
    }
  }
  return sets;
}

}  // namespace warpfuse::host::bench
