#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>

#include "common/check.h"
#include "fused_logprob/fused_logprob_arguments.h"

namespace warpfuse {

/// The forms of the operator. The columns are a shard of a vocabulary in the form "lse" alone.
enum class LogprobForm { logprob, lse, entropy };

/// The form by its name; an error for a name that is none.
LogprobForm logprob_form(const char* op, c10::string_view name);
const char* to_string(LogprobForm form);
/// The operator that a user calls for it, which complaints name.
const char* public_name(LogprobForm form);

/// What forward and backward take beside tensors of their own.
struct LogprobInputs {
  const at::Tensor& logits;   // [.., V]
  const at::Tensor& targets;  // [..]
  int64_t ignore_index;
  double temperature;
  int64_t vocab_start;
  LogprobForm form;
};

/// float32, float64 for float64 logits.
inline at::ScalarType logprob_dtype(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Everything but the targets' values, which are data.
void check_logprob(const char* op, const LogprobInputs& inputs);

/// The gradients, where they are given, must have the shape of the targets and the results' dtype.
struct LogprobGradients {
  const at::Tensor& statistics;
  const std::optional<at::Tensor>& entropy;
  const std::optional<at::Tensor>& grad_logprob;
  const std::optional<at::Tensor>& grad_lse;
  const std::optional<at::Tensor>& grad_entropy;
};
/// Of a backward: its inputs, and these.
void check_logprob_backward(const char* op, const LogprobInputs& inputs,
                            const LogprobGradients& gradients);

/// An error that names the first target that is wrong and its position. Reads the targets: on a
/// GPU it waits for the stream.
void check_target_values(const char* op, const LogprobInputs& inputs);

/// How a kernel reads `logits` where they are; none where it needs a copy: the columns are not side
/// by side, or the leading dimensions are more than two strides.
std::optional<LogitRows> logit_rows(const at::Tensor& logits);

/// The kernels' view of the targets, which are contiguous.
LogprobTargets logprob_targets(const LogprobInputs& inputs, const at::Tensor& targets);

}  // namespace warpfuse
