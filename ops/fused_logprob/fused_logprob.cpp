#include "fused_logprob/fused_logprob.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/registration.h"

namespace warpfuse {

// --- checks -----------------------------------------------------------------------------------

LogprobForm logprob_form(const char* op, c10::string_view name) {
  WARPFUSE_CHECK(name == "logprob" || name == "lse" || name == "entropy", op, "form",
                 "\"logprob\", \"lse\" or \"entropy\"", '"', name, '"');
  return name == "lse"       ? LogprobForm::lse
         : name == "entropy" ? LogprobForm::entropy
                             : LogprobForm::logprob;
}

const char* to_string(LogprobForm form) {
  switch (form) {
    case LogprobForm::lse:
      return "lse";
    case LogprobForm::entropy:
      return "entropy";
    default:
      return "logprob";
  }
}

const char* public_name(LogprobForm form) {
  switch (form) {
    case LogprobForm::lse:
      return "fused_logprob_lse";
    case LogprobForm::entropy:
      return "fused_logprob_entropy";
    default:
      return "fused_logprob";
  }
}

namespace {

c10::SymIntArrayRef leading_sizes(const at::Tensor& logits) {
  return logits.sym_sizes().slice(0, logits.dim() - 1);
}

}  // namespace

void check_logprob(const char* op, const LogprobInputs& inputs) {
  const auto& [logits, targets, ignore_index, temperature, vocab_start, form] = inputs;
  check_floating(op, "logits", logits);
  WARPFUSE_CHECK(logits.dim() > 0, op, "logits", "[.., V]", "0 dimensions");
  WARPFUSE_CHECK(targets.defined(), op, "targets", "a tensor", "an undefined one");
  WARPFUSE_CHECK(targets.scalar_type() == at::kInt || targets.scalar_type() == at::kLong, op,
                 "targets", "int32 or int64", targets.scalar_type());
  check_same_device(op, "targets", targets, logits);
  WARPFUSE_CHECK(targets.sym_sizes() == leading_sizes(logits), op, "targets",
                 c10::str("shape ", leading_sizes(logits), " of logits ", logits.sym_sizes()),
                 targets.sym_sizes());
  WARPFUSE_CHECK(temperature > 0 && std::isfinite(temperature), op, "temperature",
                 "a positive, finite number", temperature);
  WARPFUSE_CHECK(vocab_start >= 0, op, "vocab_start", "0 or a positive number of columns",
                 vocab_start);
  WARPFUSE_CHECK(vocab_start == 0 || form == LogprobForm::lse, op, "vocab_start",
                 "0, since the form \"lse\" alone knows shards", vocab_start);
}

void check_logprob_backward(const char* op, const LogprobInputs& inputs,
                            const LogprobGradients& gradients) {
  check_logprob(op, inputs);
  const at::ScalarType dtype = logprob_dtype(inputs.logits);
  const auto check = [&](const char* argument, const at::Tensor& tensor,
                         c10::SymIntArrayRef sizes) {
    WARPFUSE_CHECK(tensor.defined(), op, argument, "a tensor", "an undefined one");
    WARPFUSE_CHECK(tensor.scalar_type() == dtype, op, argument, dtype, tensor.scalar_type());
    check_same_device(op, argument, tensor, inputs.logits);
    WARPFUSE_CHECK(tensor.sym_sizes() == sizes, op, argument, c10::str("shape ", sizes),
                   tensor.sym_sizes());
  };
  const c10::SymIntArrayRef rows = inputs.targets.sym_sizes();
  std::vector<c10::SymInt> pairs = rows.vec();
  pairs.emplace_back(2);
  check("statistics", gradients.statistics, pairs);
  const auto is_given = [](const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() && tensor->defined();
  };
  const auto check_given = [&](const char* argument, const std::optional<at::Tensor>& tensor) {
    if (is_given(tensor)) {
      check(argument, *tensor, rows);
    }
  };
  check_given("entropy", gradients.entropy);
  check_given("grad_logprob", gradients.grad_logprob);
  check_given("grad_lse", gradients.grad_lse);
  check_given("grad_entropy", gradients.grad_entropy);
  WARPFUSE_CHECK(!is_given(gradients.grad_entropy) || is_given(gradients.entropy), op, "entropy",
                 "a tensor to go with grad_entropy", "none");
}

void check_target_values(const char* op, const LogprobInputs& inputs) {
  const at::Tensor targets = inputs.targets.to(at::kCPU, at::kLong).contiguous();
  const int64_t columns = inputs.logits.size(-1);
  const auto* values = targets.const_data_ptr<int64_t>();
  const bool shard = inputs.form == LogprobForm::lse;
  for (int64_t row = 0; row < targets.numel(); ++row) {
    const int64_t target = values[row];
    if (target == inputs.ignore_index || (target >= 0 && (shard || target < columns))) {
      continue;
    }
    std::vector<int64_t> position(targets.dim());
    for (int64_t d = targets.dim() - 1, rest = row; d >= 0; --d) {
      position[d] = rest % targets.size(d);
      rest /= targets.size(d);
    }
    const std::string range = shard ? "0 or more" : c10::str("in [0, ", columns, ")");
    WARPFUSE_CHECK(false, op, "targets",
                   c10::str("values ", range, ", or ignore_index ", inputs.ignore_index), target,
                   " at ", at::IntArrayRef(position));
  }
}

// --- the kernels' view ------------------------------------------------------------------------

std::optional<LogitRows> logit_rows(const at::Tensor& logits) {
  struct Level {
    int64_t size = 1;
    int64_t stride = 0;
  };
  const int64_t last = logits.dim() - 1;
  if (logits.size(last) > 1 && logits.stride(last) != 1) {
    return std::nullopt;
  }
  std::vector<Level> levels;  // the innermost first; neighbours that one stride serves are one
  for (int64_t d = last - 1; d >= 0; --d) {
    if (logits.size(d) == 1) {
      continue;
    }
    if (!levels.empty() && logits.stride(d) == levels.back().stride * levels.back().size) {
      levels.back().size *= logits.size(d);
    } else {
      levels.push_back({logits.size(d), logits.stride(d)});
    }
  }
  if (levels.size() > 2) {
    return std::nullopt;
  }
  levels.resize(2);
  return LogitRows{levels[0].size * levels[1].size, logits.size(last), levels[0].size,
                   levels[1].stride, levels[0].stride};
}

LogprobTargets logprob_targets(const LogprobInputs& inputs, const at::Tensor& targets) {
  return {targets.const_data_ptr(), targets.scalar_type() == at::kLong, inputs.ignore_index,
          inputs.vocab_start, inputs.form == LogprobForm::lse};
}

// --- Meta: shapes and dtypes only -------------------------------------------------------------

namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor empty_result(const LogprobInputs& inputs, bool wanted = true) {
  const auto options = inputs.logits.options().dtype(logprob_dtype(inputs.logits));
  return wanted ? at::empty_symint(inputs.targets.sym_sizes(), options) : at::empty({0}, options);
}

at::Tensor logprob_meta(const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index,
                        double temperature, bool) {
  const LogprobInputs inputs{logits, targets, ignore_index, temperature, 0, LogprobForm::logprob};
  check_logprob("fused_logprob", inputs);
  return empty_result(inputs);
}

std::tuple<at::Tensor, at::Tensor> logprob_lse_meta(const at::Tensor& logits,
                                                    const at::Tensor& targets, int64_t ignore_index,
                                                    double temperature, bool, int64_t vocab_start) {
  const LogprobInputs inputs{logits,      targets,     ignore_index,
                             temperature, vocab_start, LogprobForm::lse};
  check_logprob("fused_logprob_lse", inputs);
  return {empty_result(inputs), empty_result(inputs)};
}

std::tuple<at::Tensor, at::Tensor> logprob_entropy_meta(const at::Tensor& logits,
                                                        const at::Tensor& targets,
                                                        int64_t ignore_index, double temperature,
                                                        bool) {
  const LogprobInputs inputs{logits, targets, ignore_index, temperature, 0, LogprobForm::entropy};
  check_logprob("fused_logprob_entropy", inputs);
  return {empty_result(inputs), empty_result(inputs)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> with_statistics_meta(
    const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index, double temperature,
    bool, int64_t vocab_start, c10::string_view form) {
  const LogprobInputs inputs{logits,      targets,     ignore_index,
                             temperature, vocab_start, logprob_form("_fused_logprob", form)};
  check_logprob(public_name(inputs.form), inputs);
  std::vector<c10::SymInt> pairs = targets.sym_sizes().vec();
  pairs.emplace_back(2);
  return {empty_result(inputs), empty_result(inputs, inputs.form == LogprobForm::lse),
          empty_result(inputs, inputs.form == LogprobForm::entropy),
          at::empty_symint(pairs, logits.options().dtype(logprob_dtype(logits)))};
}

at::Tensor backward_meta(const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& statistics, const OptionalTensor& entropy,
                         const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                         const OptionalTensor& grad_entropy, int64_t ignore_index,
                         double temperature, int64_t vocab_start, c10::string_view form) {
  constexpr const char* kOp = "_fused_logprob_backward";
  check_logprob_backward(
      kOp, {logits, targets, ignore_index, temperature, vocab_start, logprob_form(kOp, form)},
      {statistics, entropy, grad_logprob, grad_lse, grad_entropy});
  return at::empty_symint(logits.sym_sizes(), logits.options());
}

void backward_in_place_meta(const at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& statistics, const OptionalTensor& entropy,
                            const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                            const OptionalTensor& grad_entropy, int64_t ignore_index,
                            double temperature, int64_t vocab_start, c10::string_view form) {
  constexpr const char* kOp = "_fused_logprob_backward_";
  check_logprob_backward(
      kOp, {logits, targets, ignore_index, temperature, vocab_start, logprob_form(kOp, form)},
      {statistics, entropy, grad_logprob, grad_lse, grad_entropy});
}

WARPFUSE_LIBRARY_IMPL(Meta, m) {
  m.impl("fused_logprob", logprob_meta);
  m.impl("fused_logprob_lse", logprob_lse_meta);
  m.impl("fused_logprob_entropy", logprob_entropy_meta);
  m.impl("_fused_logprob", with_statistics_meta);
  m.impl("_fused_logprob_backward", backward_meta);
  m.impl("_fused_logprob_backward_", backward_in_place_meta);
}

}  // namespace
}  // namespace warpfuse
