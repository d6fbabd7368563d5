#include "operators.h"

#include <ATen/ATen.h>

#include <limits>

const std::array<SoftmaxOperator, 2> kSoftmaxOperators = {{
    {"softmax", warpfuse::softmax,
     [](const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
       return at::softmax(self, dim, dtype);
     },
     false},
    {"log_softmax", warpfuse::log_softmax,
     [](const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
       return at::log_softmax(self, dim, dtype);
     },
     true},
}};

at::Tensor masked_softmax(const at::Tensor& scores, const MaskArguments& a) {
  return warpfuse::scaled_masked_softmax(scores, a.scale, a.attn_mask, a.causal, a.query_positions,
                                         a.key_lengths, a.window, a.masked_value);
}

at::Tensor aten_masked_softmax(const at::Tensor& scores, const MaskArguments& a) {
  at::Tensor logits = scores * a.scale;
  if (a.attn_mask) {
    const bool boolean = a.attn_mask->scalar_type() == at::kBool;
    if (!boolean) {
      logits = logits + *a.attn_mask;
    } else if (a.masked_value) {
      logits = logits.masked_fill(a.attn_mask->logical_not(), *a.masked_value);
    }
  }
  const at::Tensor visible = visible_keys(scores, a).to(scores.device());
  return at::softmax(
      logits.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity()), -1);
}

at::Tensor softmax_algorithm(const at::Tensor& self, int64_t dim, const std::string& algorithm,
                             bool log) {
  static const auto op = warpfuse::detail::find_operator<at::Tensor(
      const at::Tensor&, int64_t, c10::string_view, bool)>("warpfuse::_softmax_algorithm");
  return op.call(self, dim, algorithm, log);
}

namespace {
using DimBackward = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t);
}

at::Tensor softmax_backward(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim) {
  static const auto op =
      warpfuse::detail::find_operator<DimBackward>("warpfuse::_softmax_backward");
  return op.call(grad_output, output, dim);
}

at::Tensor log_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                int64_t dim) {
  static const auto op =
      warpfuse::detail::find_operator<DimBackward>("warpfuse::_log_softmax_backward");
  return op.call(grad_output, output, dim);
}

at::Tensor masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                   const MaskArguments& a) {
  static const auto op = warpfuse::detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, double, const std::optional<at::Tensor>&,
      c10::string_view, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, int64_t,
      std::optional<double>)>("warpfuse::_scaled_masked_softmax_backward");
  return op.call(grad_output, output, a.scale, a.attn_mask, a.causal, a.query_positions,
                 a.key_lengths, a.window, a.masked_value);
}

std::string library_tuning() {
  static const auto op = warpfuse::detail::find_operator<std::string()>("warpfuse::tuning");
  return op.call();
}

void set_library_tuning(const std::string& text) {
  static const auto op =
      warpfuse::detail::find_operator<void(c10::string_view)>("warpfuse::_set_tuning");
  op.call(text);
}

void record_launches(bool on) {
  static const auto op = warpfuse::detail::find_operator<void(bool)>("warpfuse::_record_launches");
  op.call(on);
}

std::string launches_json() {
  static const auto op = warpfuse::detail::find_operator<std::string()>("warpfuse::_launches");
  return op.call();
}
