// sample_tokens, with the options that language models are served with. ATen's is what generate()
// computes, on the top_k largest logits alone: topk, softmax, cumsum, and a draw as multinomial
// makes it (which itself synchronises with the host, and cannot be in a CUDA graph).
//
// The check sees a token that the cuts drop; whether the others are drawn as often as they should
// is for the operator's own tests.

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <warpfuse/sample_tokens.h>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace sampling_suite {
namespace {

constexpr double kTemperature = 0.8;
constexpr int64_t kTopK = 50;
constexpr double kTopP = 0.95;

struct Set {
  at::Tensor logits, step;
};

int64_t kept_at_most(const at::Tensor& logits) { return std::min(kTopK, logits.size(-1)); }

Outputs warpfuse_sample(const Set& in) {
  return sample_tokens(in.logits, in.step, /*seed=*/0, kTemperature, kTopK, kTopP);
}

Outputs aten_sample(const Set& in) {
  const auto [values, ids] = at::topk(in.logits, kept_at_most(in.logits));
  const at::Tensor p = at::softmax(values.div(kTemperature), -1);
  const at::Tensor kept = p.masked_fill((at::cumsum(p, -1) - p).ge(kTopP), 0.0);
  const at::Tensor chosen = at::argmax(kept / at::empty_like(kept).exponential_(), -1, true);
  return ids.gather(-1, chosen).squeeze(-1);
}

// How far a token's logit is below the smallest that top_k keeps, or the probability of larger ones
// above top_p. A row that holds NaN, or nothing but -inf, has none.
double error_of(const Case& c, const Set& in, const Outputs& outputs, bool of_aten) {
  const at::Tensor& tokens = outputs.result;
  if (!are_tokens(tokens, in.logits.sizes().slice(0, in.logits.dim() - 1), c.shape.columns())) {
    return kInfinity;
  }
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    const at::Tensor x = part(in.logits).to(at::kDouble), token = column(part, tokens);
    const at::Tensor least = std::get<0>(at::topk(x, kept_at_most(x))).narrow(-1, -1, 1);
    const at::Tensor logit = x.gather(-1, token.clamp_min(0));
    const at::Tensor below = (least - logit) / (least.abs() + 1);
    // All that equal the least are kept.
    const at::Tensor p = at::softmax(x.masked_fill(x.lt(least), -kInfinity) / kTemperature, -1);
    const at::Tensor above = (p * x.gt(logit)).sum(-1, true) - kTopP;
    const at::Tensor errors = token_errors(at::maximum(below, above).clamp_min(0), token,
                                           p.isnan().any(-1, true), of_aten);
    worst = worse(worst, errors.max().item<double>());
  });
  return worst;
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_sets<Set>(setup);
  const at::TensorOptions options = options_of(c, setup);
  add_tensors(*sets, &Set::logits, c.shape.sizes, options, setup.scores);
  for (size_t i = 0; i < sets->size(); ++i) {
    (*sets)[i].step = at::full({1}, static_cast<int64_t>(i), options.dtype(at::kLong));
  }
  const auto error = [&](bool of_aten) {
    return against(sets, [c, of_aten](const Set& in, const Outputs& outputs) {
      return error_of(c, in, outputs, of_aten);
    });
  };
  return {
      {"warpfuse", plugin, on(sets, warpfuse_sample), error(false), tolerance_of(c.dtype, false)},
      {"aten", aten, on(sets, aten_sample), error(true), tolerance_of(c.dtype, true)}};
}

// A row's logits are read once, and its token is written. What ATen does behind topk is small.
Bytes bytes(const Case& c) {
  const int64_t pass = c.bytes();
  const int64_t tokens = c.rows() * int64_t{sizeof(int64_t)};
  const int64_t least = pass + tokens;
  return {.least = least, .fused = least, .unfused = least, .inputs = pass};
}

constexpr Benchmark kBenchmark{
    .name = "sample_tokens",
    .shapes = kRowShapes,
    .takes = has_rows,
    .directions = kForward,
    .operators = [](const Case&) { return std::vector<std::string>{"warpfuse::sample_tokens"}; },
    .bytes = bytes,
    .variants = variants};

}  // namespace
}  // namespace sampling_suite

constexpr Benchmark kSampleTokens = sampling_suite::kBenchmark;

}  // namespace warpfuse::host::bench
