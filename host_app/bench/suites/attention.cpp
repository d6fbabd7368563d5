// scaled_masked_softmax, with every kind of mask. ATen's is the chain that it stands for, one
// kernel a step; what a mask step needs is ready before.

#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>

#include "bench/suites/attention_inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace attention_suite {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Set = AttentionSet;

at::Tensor chain_gradient(const Set& in) { return chain_backward(in, in.grad_output); }

Expected expected_of(const Case& c, const Set& set, const Part& part) {
  if (c.is_forward()) {
    const at::Tensor value = attention_forward(c, set, part(set.scores).to(at::kDouble), part);
    return {value, value};
  }
  const at::Tensor y = part(set.output).to(at::kDouble);
  Expected gradient =
      softmax_gradient(y, part(set.grad_output).to(at::kDouble), y * kAttentionScale, -1);
  if (set.hidden.defined()) {  // zero also in a row that holds NaN
    gradient.value.masked_fill_(part(set.hidden), 0.0);
  }
  return gradient;
}

std::function<Outputs(int64_t)> plugin_call(const Case& c, const Sets<Set>& sets) {
  const char* causal = causal_of(c);
  if (c.is_forward()) {
    return on(sets, [causal](const Set& in) {
      return scaled_masked_softmax(in.scores, kAttentionScale, in.attn_mask, causal,
                                   in.query_positions, in.key_lengths);
    });
  }
  return on(sets, [causal](const Set& in) {
    static const auto op = detail::find_operator<at::Tensor(
        const at::Tensor&, const at::Tensor&, double, const OptionalTensor&, c10::string_view,
        const OptionalTensor&, const OptionalTensor&, int64_t, std::optional<double>)>(
        "warpfuse::_scaled_masked_softmax_backward");
    return op.call(in.grad_output, in.output, kAttentionScale, in.attn_mask, causal,
                   in.query_positions, in.key_lengths, 0, std::nullopt);
  });
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_sets<Set>(setup);
  add_attention_masks(*sets, c, options_of(c, setup));
  add_scores(*sets, c, setup, [&](const Set& set, const at::Tensor& scores, const Part& part) {
    return attention_forward(c, set, scores, part);
  });
  const auto error = against_pieces(sets, c, expected_of);
  return {{"warpfuse", plugin, plugin_call(c, sets), error, tolerance_of(c.dtype, false)},
          {"chain", aten, c.is_forward() ? on(sets, chain_forward) : on(sets, chain_gradient),
           error, tolerance_of(c.dtype, true)}};
}

std::vector<std::string> operators(const Case& c) {
  return {c.is_forward() ? "warpfuse::scaled_masked_softmax"
                         : "warpfuse::_scaled_masked_softmax_backward"};
}

constexpr Benchmark kBenchmark{.name = "scaled_masked_softmax",
                               .shapes = "2 to 4 sizes, and no other dim than the last,",
                               .takes = is_attention,
                               .masks = kAttentionMasks,
                               .operators = operators,
                               .bytes = attention_bytes,
                               .variants = variants};

}  // namespace
}  // namespace attention_suite

constexpr Benchmark kScaledMaskedSoftmax = attention_suite::kBenchmark;

}  // namespace warpfuse::host::bench
