#include "sample_tokens/sample_tokens.h"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "common/registration.h"
#include "sample_tokens/sample_mass.h"

namespace warpfuse {
namespace {

constexpr const char* kOp = "sample_tokens";

// --- checks -----------------------------------------------------------------------------------

c10::SymIntArrayRef leading_sizes(const at::Tensor& logits) {
  return logits.sym_sizes().slice(0, logits.dim() - 1);
}

c10::SymInt row_count(const at::Tensor& logits) {
  c10::SymInt rows = 1;
  for (const c10::SymInt& size : leading_sizes(logits)) {
    rows *= size;
  }
  return rows;
}

}  // namespace

void check_sample_tokens(const SampleInputs& inputs) {
  const auto& [logits, step, seed, temperature, top_k, top_p, min_p, rows] = inputs;
  check_floating(kOp, "logits", logits);
  WARPFUSE_CHECK(logits.dim() > 0, kOp, "logits", "[.., V]", "0 dimensions");
  const c10::SymInt count = row_count(logits);
  WARPFUSE_CHECK(step.defined(), kOp, "step", "a tensor", "an undefined one");
  WARPFUSE_CHECK(step.scalar_type() == at::kLong || step.scalar_type() == at::kInt, kOp, "step",
                 "int64 or int32", step.scalar_type());
  check_same_device(kOp, "step", step, logits);
  WARPFUSE_CHECK(step.sym_numel() == 1 || step.sym_numel() == count, kOp, "step",
                 c10::str("one element, or one for each of ", count, " rows"), step.sym_numel());
  if (rows.has_value() && rows->defined()) {
    WARPFUSE_CHECK(rows->scalar_type() == at::kLong, kOp, "rows", "int64", rows->scalar_type());
    check_same_device(kOp, "rows", *rows, logits);
    WARPFUSE_CHECK(rows->sym_numel() == count, kOp, "rows",
                   c10::str("one element for each of ", count, " rows"), rows->sym_numel());
  }
  WARPFUSE_CHECK(temperature >= 0 && std::isfinite(temperature), kOp, "temperature",
                 "0 or a positive, finite number", temperature);
  WARPFUSE_CHECK(top_k >= 0, kOp, "top_k", "0 or a positive number of tokens", top_k);
  WARPFUSE_CHECK(top_p > 0 && top_p <= 1, kOp, "top_p", "a probability above 0, at most 1", top_p);
  WARPFUSE_CHECK(min_p >= 0 && min_p <= 1, kOp, "min_p", "a probability from 0 to 1", min_p);
}

void check_vocabulary(const SampleInputs& inputs) {
  const int64_t columns = inputs.logits.size(-1);
  WARPFUSE_CHECK(columns > 0, kOp, "logits", "at least one column",
                 c10::str("shape ", inputs.logits.sizes()));
  WARPFUSE_CHECK(columns <= kMostColumns, kOp, "logits",
                 c10::str("at most ", kMostColumns, " columns"), columns);
}

// --- the kernels' view ------------------------------------------------------------------------

namespace {

/// Elements from a row to the next, of rows that are read where they are; none where they need a
/// copy.
std::optional<int64_t> row_stride(const at::Tensor& logits) {
  const int64_t last = logits.dim() - 1;
  if (logits.size(last) > 1 && logits.stride(last) != 1) {
    return std::nullopt;
  }
  int64_t stride = 0, rows = 1;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (logits.size(d) == 1) {
      continue;
    }
    if (rows > 1 && logits.stride(d) != stride * rows) {
      return std::nullopt;
    }
    stride = rows > 1 ? stride : logits.stride(d);
    rows *= logits.size(d);
  }
  return stride;
}

SampleRule sample_rule(const SampleInputs& inputs) {
  SampleRule rule{};
  rule.greedy = inputs.temperature == 0;
  // Finite for the smallest temperatures too: equal logits must stay equal.
  rule.scale =
      std::min(std::numbers::log2e / inputs.temperature, std::numeric_limits<double>::max());
  rule.top_k = inputs.top_k < inputs.logits.size(-1) ? inputs.top_k : 0;
  rule.top_p = inputs.top_p < 1;
  // 1 - top_p is 1 where top_p is tiny.
  const double left_out = 1 - inputs.top_p;
  rule.left_out = left_out < 1 ? static_cast<uint64_t>(std::ldexp(left_out, 64))
                               : std::numeric_limits<uint64_t>::max();
  rule.least_mass =
      static_cast<uint64_t>(std::ceil(std::ldexp(inputs.min_p, static_cast<int>(kMassBits))));
  return rule;
}

}  // namespace

SampleTokensArguments sample_arguments(const SampleInputs& inputs, SampleTensors& tensors) {
  const at::Tensor& logits = inputs.logits;
  tensors.tokens =
      at::empty(logits.sizes().slice(0, logits.dim() - 1), logits.options().dtype(at::kLong));
  const int64_t rows = tensors.tokens.numel();
  if (rows == 0) {
    return {};
  }
  auto stride = row_stride(logits);
  tensors.logits = stride.has_value() ? logits : logits.contiguous();
  tensors.step = inputs.step.contiguous();
  if (inputs.rows.has_value() && inputs.rows->defined()) {
    tensors.rows = inputs.rows->contiguous();
  }
  return {.logits = tensors.logits.const_data_ptr(),
          .dtype = to_dtype(logits.scalar_type()),
          .rows = rows,
          .columns = logits.size(-1),
          .row_stride = stride.value_or(logits.size(-1)),
          .rule = sample_rule(inputs),
          .seed = static_cast<uint64_t>(inputs.seed),
          .step = {tensors.step.const_data_ptr(), tensors.step.scalar_type() == at::kLong,
                   tensors.step.numel() == 1 ? 0 : 1},
          .row_names = tensors.rows.defined() ? tensors.rows.const_data_ptr<int64_t>() : nullptr,
          .tokens = tensors.tokens.mutable_data_ptr<int64_t>()};
}

// --- Meta: shapes and dtypes only -------------------------------------------------------------

namespace {

at::Tensor sample_tokens_meta(const at::Tensor& logits, const at::Tensor& step, int64_t seed,
                              double temperature, int64_t top_k, double top_p, double min_p,
                              const std::optional<at::Tensor>& rows) {
  check_sample_tokens({logits, step, seed, temperature, top_k, top_p, min_p, rows});
  return at::empty_symint(leading_sizes(logits), logits.options().dtype(at::kLong));
}

WARPFUSE_LIBRARY_IMPL(Meta, m) { m.impl("sample_tokens", sample_tokens_meta); }

// Token ids have no gradient.
WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("sample_tokens", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace warpfuse
