#include "sample_tokens/sample_tokens.h"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "core/operator.h"
#include "rowwise/row_tensors.h"
#include "sample_tokens/sample_counters.h"
#include "sample_tokens/sample_mass.h"

namespace warpfuse {

Counter bounded_rows("cpu.sample_bounded");
Counter narrowed_lists("cpu.sample_narrowed");

namespace {

constexpr const char* kSampleTokens = "sample_tokens";

struct SampleInputs {
  const at::Tensor& logits;  // [.., V]
  const at::Tensor& step;
  int64_t seed;
  double temperature;
  int64_t top_k;
  double top_p;
  double min_p;
  at::Tensor rows;  // undefined without names

  c10::SymIntArrayRef leading_sizes() const {
    return logits.sym_sizes().slice(0, logits.dim() - 1);
  }
};

// --- checks -----------------------------------------------------------------------------------

/// Checks all but V, which Meta may not know.
void check_sample_tokens(const SampleInputs& inputs) {
  const auto& [logits, step, seed, temperature, top_k, top_p, min_p, rows] = inputs;
  check_floating(kSampleTokens, "logits", logits);
  WARPFUSE_CHECK(logits.dim() > 0, kSampleTokens, "logits", "[.., V]", "0 dimensions");
  c10::SymInt count = 1;
  for (const c10::SymInt& size : inputs.leading_sizes()) {
    count *= size;
  }
  check_integers(kSampleTokens, "step", step);
  check_same_device(kSampleTokens, "step", step, logits);
  WARPFUSE_CHECK(is_one_or(step.sym_numel(), count), kSampleTokens, "step",
                 c10::str("one element, or one for each of ", count, " rows"), step.sym_numel());
  if (rows.defined()) {
    WARPFUSE_CHECK(rows.scalar_type() == at::kLong, kSampleTokens, "rows", "int64",
                   rows.scalar_type());
    check_same_device(kSampleTokens, "rows", rows, logits);
    WARPFUSE_CHECK(rows.sym_numel() == count, kSampleTokens, "rows",
                   c10::str("one element for each of ", count, " rows"), rows.sym_numel());
  }
  WARPFUSE_CHECK(temperature >= 0 && std::isfinite(temperature), kSampleTokens, "temperature",
                 "0 or a positive, finite number", temperature);
  WARPFUSE_CHECK(top_k >= 0, kSampleTokens, "top_k", "0 or a positive number of tokens", top_k);
  WARPFUSE_CHECK(top_p > 0 && top_p <= 1, kSampleTokens, "top_p",
                 "a probability above 0, at most 1", top_p);
  WARPFUSE_CHECK(min_p >= 0 && min_p <= 1, kSampleTokens, "min_p", "a probability from 0 to 1",
                 min_p);
}

void check_vocabulary(const at::Tensor& logits) {
  const int64_t columns = logits.size(-1);
  WARPFUSE_CHECK(columns > 0, kSampleTokens, "logits", "at least one column",
                 c10::str("shape ", logits.sizes()));
  WARPFUSE_CHECK(columns <= kMaxColumns, kSampleTokens, "logits",
                 c10::str("at most ", kMaxColumns, " columns"), columns);
}

// --- the kernels' view ------------------------------------------------------------------------

SampleRule sample_rule(const SampleInputs& inputs) {
  SampleRule rule{};
  rule.greedy = inputs.temperature == 0;
  // Clamped to finite numbers, so that equal logits stay equal at the smallest temperatures.
  rule.scale =
      std::min(std::numbers::log2e / inputs.temperature, std::numeric_limits<double>::max());
  rule.top_k = inputs.top_k < inputs.logits.size(-1) ? inputs.top_k : 0;
  rule.has_top_p = inputs.top_p < 1;
  const double left_out = 1 - inputs.top_p;  // rounds to 1 for a tiny top_p
  rule.left_out = left_out < 1 ? static_cast<uint64_t>(std::ldexp(left_out, 64))
                               : std::numeric_limits<uint64_t>::max();
  rule.min_mass =
      static_cast<uint64_t>(std::ceil(std::ldexp(inputs.min_p, static_cast<int>(kMassBits))));
  return rule;
}

// --- operator ---------------------------------------------------------------------------------

struct SampleTokens {
  static constexpr const char* kName = kSampleTokens;

  template <typename Backend>
  static at::Tensor run(const at::Tensor& logits, const at::Tensor& step, int64_t seed,
                        double temperature, int64_t top_k, double top_p, double min_p,
                        const std::optional<at::Tensor>& rows) {
    const SampleInputs inputs{logits, step,  seed,  temperature,
                              top_k,  top_p, min_p, rows.value_or(at::Tensor())};
    check_sample_tokens(inputs);
    if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
      check_vocabulary(logits);
    }
    at::Tensor tokens = Backend::empty(inputs.leading_sizes(), logits.options().dtype(at::kLong));
    if (Backend::computes(tokens)) {
      const auto stride = row_stride(logits);
      const at::Tensor x = stride.has_value() ? logits : logits.contiguous();
      const at::Tensor steps = step.contiguous();
      const at::Tensor names = inputs.rows.defined() ? inputs.rows.contiguous() : inputs.rows;
      Backend::launch(logits,
                      SampleTokensArguments{
                          .logits = x.const_data_ptr(),
                          .dtype = to_dtype(x.scalar_type()),
                          .rows = tokens.numel(),
                          .columns = x.size(-1),
                          .row_stride = stride.value_or(x.size(-1)),
                          .rule = sample_rule(inputs),
                          .seed = static_cast<uint64_t>(seed),
                          .step = {steps.const_data_ptr(), steps.scalar_type() == at::kLong,
                                   steps.numel() == 1 ? 0 : 1},
                          .row_names = names.defined() ? names.const_data_ptr<int64_t>() : nullptr,
                          .tokens = tokens.mutable_data_ptr<int64_t>()});
    }
    return tokens;
  }
};

WARPFUSE_OPERATORS(m) { register_operator<SampleTokens>(m); }

// Token ids have no gradient.
WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl(kSampleTokens, torch::autograd::autogradNotImplementedFallback());
}

}  // namespace

void launch_cpu(const SampleTokensArguments& arguments) {
  parallel_rows(arguments.rows, arguments.columns,
                [&](int64_t begin, int64_t end) { sample_tokens_cpu(arguments, begin, end); });
}

}  // namespace warpfuse
