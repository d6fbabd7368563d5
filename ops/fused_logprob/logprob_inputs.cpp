#include "fused_logprob/logprob_inputs.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace warpfuse {

LogprobForm logprob_form(const char* op, c10::string_view name) {
  const auto* const found = std::ranges::find(kFormNames, name);
  WARPFUSE_CHECK(found != std::end(kFormNames), op, "form", "\"logprob\", \"lse\" or \"entropy\"",
                 '"', name, '"');
  return static_cast<LogprobForm>(found - kFormNames);
}

void check_logprob(const char* op, const LogprobInputs& inputs) {
  const auto& [logits, targets, ignore_index, temperature, check_targets, vocab_start, form] =
      inputs;
  check_floating(op, "logits", logits);
  WARPFUSE_CHECK(logits.dim() > 0, op, "logits", "[.., V]", "0 dimensions");
  check_integers(op, "targets", targets);
  check_same_device(op, "targets", targets, logits);
  const c10::SymIntArrayRef leading_sizes = logits.sym_sizes().slice(0, logits.dim() - 1);
  WARPFUSE_CHECK(targets.sym_sizes() == leading_sizes, op, "targets",
                 c10::str("shape ", leading_sizes, " of logits ", logits.sym_sizes()),
                 targets.sym_sizes());
  WARPFUSE_CHECK(temperature > 0 && std::isfinite(temperature), op, "temperature",
                 "a positive, finite number", temperature);
  WARPFUSE_CHECK(vocab_start >= 0, op, "vocab_start", "0 or a positive number of columns",
                 vocab_start);
  WARPFUSE_CHECK(vocab_start == 0 || form == kFormNames[static_cast<int>(LogprobForm::lse)], op,
                 "vocab_start", "0, since the form \"lse\" alone knows shards", vocab_start);
}

at::TensorOptions logprob_options(const at::Tensor& logits) {
  return logits.options().dtype(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

std::vector<c10::SymInt> statistics_sizes(const at::Tensor& targets) {
  std::vector<c10::SymInt> sizes = targets.sym_sizes().vec();
  sizes.emplace_back(2);
  return sizes;
}

void check_logprob_backward(const char* op, const LogprobBackwardInputs& inputs) {
  logprob_form(op, inputs.form);
  check_logprob(op, inputs.forward());
  const at::ScalarType dtype = logprob_options(inputs.logits).dtype().toScalarType();
  const auto check = [&](const char* argument, const at::Tensor& tensor,
                         c10::SymIntArrayRef sizes) {
    check_tensor(op, argument, tensor);
    WARPFUSE_CHECK(tensor.scalar_type() == dtype, op, argument, dtype, tensor.scalar_type());
    check_same_device(op, argument, tensor, inputs.logits);
    check_shape(op, argument, tensor, sizes);
  };
  const auto check_given = [&](const char* argument, const std::optional<at::Tensor>& tensor) {
    if (is_given(tensor)) {
      check(argument, *tensor, inputs.targets.sym_sizes());
    }
  };
  check("statistics", inputs.statistics, statistics_sizes(inputs.targets));
  check_given("entropy", inputs.entropy);
  check_given("grad_logprob", inputs.grad_logprob);
  check_given("grad_lse", inputs.grad_lse);
  check_given("grad_entropy", inputs.grad_entropy);
  WARPFUSE_CHECK(!is_given(inputs.grad_entropy) || is_given(inputs.entropy), op, "entropy",
                 "a tensor to go with grad_entropy", "none");
}

void check_target_values(const char* op, const LogprobInputs& inputs, bool is_shard) {
  const at::Tensor targets = inputs.targets.to(at::kCPU, at::kLong).contiguous();
  const int64_t columns = inputs.logits.size(-1);
  const auto* values = targets.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < targets.numel(); ++row) {
    const int64_t target = values[row];
    if (target == inputs.ignore_index || (target >= 0 && (is_shard || target < columns))) {
      continue;
    }
    std::vector<int64_t> position(targets.dim());
    for (int64_t d = targets.dim() - 1, rest = row; d >= 0; --d) {
      position[d] = rest % targets.size(d);
      rest /= targets.size(d);
    }
    const std::string range = is_shard ? "0 or more" : c10::str("in [0, ", columns, ")");
    WARPFUSE_CHECK(false, op, "targets",
                   c10::str("values ", range, ", or ignore_index ", inputs.ignore_index), target,
                   " at ", at::IntArrayRef(position));
  }
}

}  // namespace warpfuse
