#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/check.h"

namespace warpfuse {

/// What an operator returns beside logprob. Only the form lse takes a shard of a vocabulary.
enum class LogprobForm { logprob, lse, entropy };
/// The forms in schemas, and the public operators, which errors name.
inline constexpr const char* kFormNames[] = {"logprob", "lse", "entropy"};
inline constexpr const char* kFormOperators[] = {"fused_logprob", "fused_logprob_lse",
                                                 "fused_logprob_entropy"};

/// Arguments of _fused_logprob. The public operators have no `form`, and only that of lse has
/// `vocab_start`.
struct LogprobInputs {
  const at::Tensor& logits;   // [.., V]
  const at::Tensor& targets;  // [..]
  int64_t ignore_index;
  double temperature;
  bool check_targets;
  int64_t vocab_start;
  c10::string_view form;

  using Fields = std::tuple<const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t,
                            c10::string_view>;
  Fields fields() const {
    return {logits, targets, ignore_index, temperature, check_targets, vocab_start, form};
  }
};

/// logprob, lse, entropy (without elements, or undefined, where the form has none) and statistics.
using LogprobResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// What the public operator of a form returns.
template <LogprobForm kForm>
using FormResult = std::conditional_t<kForm == LogprobForm::logprob, at::Tensor,
                                      std::tuple<at::Tensor, at::Tensor>>;
template <LogprobForm kForm>
FormResult<kForm> form_result(const LogprobResults& results) {
  const auto& [logprob, lse, entropy, statistics] = results;
  if constexpr (kForm == LogprobForm::logprob) {
    return logprob;
  } else {
    return {logprob, kForm == LogprobForm::lse ? lse : entropy};
  }
}

/// Arguments of _fused_logprob_backward and _fused_logprob_backward_.
struct LogprobBackwardInputs {
  const at::Tensor& logits;                  // [.., V]
  const at::Tensor& targets;                 // [..]
  const at::Tensor& statistics;              // [.., 2]
  const std::optional<at::Tensor>& entropy;  // [..], as are the gradients
  const std::optional<at::Tensor>& grad_logprob;
  const std::optional<at::Tensor>& grad_lse;
  const std::optional<at::Tensor>& grad_entropy;
  int64_t ignore_index;
  double temperature;
  int64_t vocab_start;
  c10::string_view form;

  using OptionalTensor = const std::optional<at::Tensor>&;
  using Fields = std::tuple<const at::Tensor&, const at::Tensor&, const at::Tensor&, OptionalTensor,
                            OptionalTensor, OptionalTensor, OptionalTensor, int64_t, double,
                            int64_t, c10::string_view>;
  Fields fields() const {
    return {logits,       targets,      statistics,  entropy,     grad_logprob, grad_lse,
            grad_entropy, ignore_index, temperature, vocab_start, form};
  }
  LogprobInputs forward() const {
    return {logits, targets, ignore_index, temperature, false, vocab_start, form};
  }
};

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

/// Options of results: float32, float64 for float64 logits.
at::TensorOptions logprob_options(const at::Tensor& logits);
std::vector<c10::SymInt> statistics_sizes(const at::Tensor& targets);

LogprobForm logprob_form(const char* op, c10::string_view name);
/// Check all but the targets' values.
void check_logprob(const char* op, const LogprobInputs& inputs);
void check_logprob_backward(const char* op, const LogprobBackwardInputs& inputs);
/// Throws for the first invalid target, with its position. Reads the targets: on a GPU it waits for
/// the stream.
void check_target_values(const char* op, const LogprobInputs& inputs, bool is_shard);

}  // namespace warpfuse
