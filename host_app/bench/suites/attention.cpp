// scaled_masked_softmax, with every kind of mask. ATen's is the chain that it stands for, one
// kernel a step; what a mask step needs is ready before.
//
// scaled_masked_softmax_dropout, in training: ATen's is the chain and native_dropout; "softmax" is
// the plugin's scaled_masked_softmax alone. dropout.cpp says how a forward is checked.

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/softmax.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/scaled_masked_softmax_dropout.h>

#include <tuple>

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
                               .shapes = kAttentionShapes,
                               .takes = is_attention,
                               .masks = kAttentionMasks,
                               .operators = operators,
                               .bytes = attention_bytes,
                               .variants = variants};

}  // namespace
}  // namespace attention_suite

constexpr Benchmark kScaledMaskedSoftmax = attention_suite::kBenchmark;

// --- with dropout -------------------------------------------------------------------------------

namespace attention_dropout_suite {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Set = AttentionSet;

// --- the plugin -------------------------------------------------------------------------------

struct Drawn {
  at::Tensor statistics, rng;
};

Drawn private_forward(const Case& c, const Set& in, const OptionalTensor& rng) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, double, const OptionalTensor&, c10::string_view, const OptionalTensor&,
      const OptionalTensor&, int64_t, std::optional<double>, double, const OptionalTensor&)>(
      "warpfuse::_scaled_masked_softmax_dropout");
  const auto [output, statistics, used] =
      op.call(in.scores, kAttentionScale, in.attn_mask, causal_of(c), in.query_positions,
              in.key_lengths, 0, std::nullopt, kDropoutP, rng);
  return {.statistics = statistics, .rng = used};
}

std::function<Outputs(int64_t)> plugin_call(const Case& c, const Sets<Set>& sets) {
  const char* causal = causal_of(c);
  if (c.is_forward()) {
    return on(sets, [causal](const Set& in) {
      return scaled_masked_softmax_dropout(in.scores, kAttentionScale, in.attn_mask, causal,
                                           in.query_positions, in.key_lengths, 0, std::nullopt,
                                           kDropoutP, /*training=*/true);
    });
  }
  return on(sets, [causal](const Set& in) {
    static const auto op = detail::find_operator<at::Tensor(
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
        const OptionalTensor&, c10::string_view, const OptionalTensor&, const OptionalTensor&,
        int64_t, std::optional<double>, double)>(
        "warpfuse::_scaled_masked_softmax_dropout_backward");
    return op.call(in.grad_output, in.scores, in.statistics, in.rng, kAttentionScale, in.attn_mask,
                   causal, in.query_positions, in.key_lengths, 0, std::nullopt, kDropoutP);
  });
}

// --- ATen -------------------------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor> aten_both(const Set& in) {
  return at::native_dropout(chain_forward(in), kDropoutP, /*train=*/true);
}

at::Tensor aten_forward(const Set& in) { return std::get<0>(aten_both(in)); }

at::Tensor aten_backward(const Set& in) {
  return chain_backward(in, aten_dropout_backward(in.grad_output, in.keep));
}

// --- checks -----------------------------------------------------------------------------------

Expected expected_of(const Case& c, const Set& in, const at::Tensor& keep, const Part& part) {
  const at::Tensor y = attention_forward(c, in, part(in.scores).to(at::kDouble), part);
  const at::Tensor k = dropout_factors(part(keep));
  if (c.is_forward()) {
    return {y * k, y * k};
  }
  const at::Tensor g = part(in.grad_output).to(at::kDouble) * k;
  return softmax_gradient(y, g, y * kAttentionScale, -1);
}

at::Tensor kept_by_plugin(const Case& c, const Set& in) {
  return kept_by(in.scores, private_forward(c, in, std::nullopt).rng);
}

at::Tensor kept_by_aten(const Case&, const Set& in) { return std::get<1>(aten_both(in)); }

// --- the benchmark ----------------------------------------------------------------------------

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_sets<Set>(setup);
  add_attention_masks(*sets, c, options_of(c, setup));
  add_dropout_scores(
      *sets, c, setup, [&](const Set& set) { return private_forward(c, set, set.rng).statistics; },
      [&](const Set& set, const at::Tensor& scores, const Part& part) {
        return attention_forward(c, set, scores, part);
      });
  // A backward rounds twice, the softmax as a saved one would be, and the gradient.
  const double rounds = c.is_forward() ? 1 : 2;
  return {{"warpfuse", plugin, plugin_call(c, sets),
           dropout_error(c, sets, kept_by_plugin, expected_of),
           tolerance_of(c.dtype, /*of_aten=*/false) * rounds},
          {"aten", aten, on(sets, c.is_forward() ? aten_forward : aten_backward),
           dropout_error(c, sets, kept_by_aten, expected_of),
           tolerance_of(c.dtype, /*of_aten=*/true) * rounds},
          plugin_variant(kScaledMaskedSoftmax, "softmax", c, setup)};
}

std::vector<std::string> operators(const Case& c) {
  std::vector<std::string> names = kScaledMaskedSoftmax.operators(c);
  names.insert(names.end(),
               {"warpfuse::_dropout_mask", "warpfuse::_scaled_masked_softmax_dropout"});
  names.emplace_back(c.is_forward() ? "warpfuse::scaled_masked_softmax_dropout"
                                    : "warpfuse::_scaled_masked_softmax_dropout_backward");
  return names;
}

// Those of scaled_masked_softmax, and in the backward two numbers per row, and an additive mask,
// from which the softmax comes again. Unfused a kernel more reads and writes all, and a mask of 1
// byte per element.
Bytes bytes(const Case& c) {
  Bytes all = attention_bytes(c);
  const auto element = c.element_bytes();
  const int64_t elements = c.shape.elements();
  if (!c.is_forward()) {
    const int64_t mask =
        c.mask == Mask::additive ? c.shape.sizes.end()[-2] * c.shape.columns() * element : 0;
    const int64_t more = c.rows() * 2 * c.sum_bytes() + mask;
    all.least += more;
    all.fused += more;
    all.inputs += mask;
  }
  all.unfused += 2 * elements * element + elements;
  return all;
}

constexpr Benchmark kBenchmark{.name = "scaled_masked_softmax_dropout",
                               .family = "scaled_masked_softmax",
                               .shapes = kAttentionShapes,
                               .takes = is_attention,
                               .masks = kAttentionMasks,
                               .operators = operators,
                               .bytes = bytes,
                               .variants = variants};

}  // namespace
}  // namespace attention_dropout_suite

constexpr Benchmark kScaledMaskedSoftmaxDropout = attention_dropout_suite::kBenchmark;

}  // namespace warpfuse::host::bench
