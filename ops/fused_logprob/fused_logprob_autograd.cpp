#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/fused_logprob.h>

#include <string>

#include "common/autograd_function.h"
#include "common/registration.h"
#include "fused_logprob/fused_logprob.h"

// No kernel for autocast: without one an operator takes its inputs as they are.

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// --- the private operators --------------------------------------------------------------------

/// logprob, lse, entropy, statistics.
using LogprobResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

LogprobResult call_with_statistics(const LogprobInputs& inputs, bool check_targets) {
  static const auto op = detail::find_operator<LogprobResult(
      const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t, c10::string_view)>(
      "warpfuse::_fused_logprob");
  return op.call(inputs.logits, inputs.targets, inputs.ignore_index, inputs.temperature,
                 check_targets, inputs.vocab_start, to_string(inputs.form));
}

template <typename Result>
using BackwardSignature = Result(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const OptionalTensor&, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&, int64_t, double,
                                 int64_t, c10::string_view);

template <typename... Arguments>
at::Tensor call_backward(const Arguments&... arguments) {
  static const auto op =
      detail::find_operator<BackwardSignature<at::Tensor>>("warpfuse::_fused_logprob_backward");
  return op.call(arguments...);
}

template <typename... Arguments>
void call_backward_in_place(const Arguments&... arguments) {
  static const auto op =
      detail::find_operator<BackwardSignature<void>>("warpfuse::_fused_logprob_backward_");
  op.call(arguments...);
}

// --- forward ----------------------------------------------------------------------------------

// What is saved beside the inputs is what the kernels need of a row: its statistics, and its
// entropy where that has a gradient.
class Forward : public AutogradFunction<Forward> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& logits,
                               const at::Tensor& targets, int64_t ignore_index, double temperature,
                               bool check_targets, int64_t vocab_start, const std::string& form) {
    at::AutoDispatchBelowADInplaceOrView below;
    const LogprobInputs inputs{logits,      targets,     ignore_index,
                               temperature, vocab_start, logprob_form("_fused_logprob", form)};
    const auto [logprob, lse, entropy, statistics] = call_with_statistics(inputs, check_targets);
    const bool has_entropy = inputs.form == LogprobForm::entropy;
    context->save_for_backward({logits, targets, statistics, has_entropy ? entropy : at::Tensor()});
    context->set_materialize_grads(false);
    context->saved_data["ignore_index"] = ignore_index;
    context->saved_data["temperature"] = temperature;
    context->saved_data["vocab_start"] = vocab_start;
    context->saved_data["form"] = form;
    variable_list constant = {statistics};
    if (inputs.form != LogprobForm::lse) {
      constant.push_back(lse);
    }
    if (!has_entropy) {
      constant.push_back(entropy);
    }
    context->mark_non_differentiable(constant);
    return {logprob, lse, entropy, statistics};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list result(7);
    const auto given = [&](size_t i) {
      return grads[i].defined() ? OptionalTensor(grads[i]) : std::nullopt;
    };
    if (!given(0) && !given(1) && !given(2)) {
      return result;
    }
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const std::string form = data["form"].toStringRef();
    result[0] = call_backward(
        saved[0], saved[1], saved[2], form == "entropy" ? OptionalTensor(saved[3]) : std::nullopt,
        given(0), given(1), given(2), data["ignore_index"].toInt(), data["temperature"].toDouble(),
        data["vocab_start"].toInt(), c10::string_view(form));
    return result;
  }

  // A result belongs to its row alone, so its tangent is the row's product with its gradient.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& logits, const at::Tensor& targets,
                           int64_t ignore_index, double temperature, bool, int64_t vocab_start,
                           const std::string& form) {
    const at::Tensor& statistics = outputs[3];
    const at::Tensor t = tangents[0].to(statistics.scalar_type());
    const OptionalTensor one = at::ones_like(outputs[0]), none;
    const auto tangent = [&](const OptionalTensor& of_logprob, const OptionalTensor& of_lse,
                             const OptionalTensor& of_entropy) {
      const at::Tensor gradient = call_backward(
          logits, targets, statistics,
          form == "entropy" ? OptionalTensor(outputs[2]) : std::nullopt, of_logprob, of_lse,
          of_entropy, ignore_index, temperature, vocab_start, c10::string_view(form));
      return (gradient * t).sum(-1);
    };
    variable_list result(4);
    result[0] = tangent(one, none, none);
    if (form == "lse") {
      result[1] = tangent(none, one, none);
    } else if (form == "entropy") {
      result[2] = tangent(none, none, one);
    }
    return result;
  }
};

LogprobResult with_statistics_autograd(const at::Tensor& logits, const at::Tensor& targets,
                                       int64_t ignore_index, double temperature, bool check_targets,
                                       int64_t vocab_start, c10::string_view form) {
  const variable_list out = Forward::apply(logits, targets, ignore_index, temperature,
                                           check_targets, vocab_start, std::string(form));
  return {out[0], out[1], out[2], out[3]};
}

// Whether a gradient may be asked for, or a tangent is there. Without either, nothing is kept of a
// row.
bool differentiates(const at::Tensor& logits) {
  return logits.defined() &&
         ((c10::GradMode::is_enabled() && logits.requires_grad()) || logits._fw_grad(0).defined());
}

at::Tensor logprob_autograd(const at::Tensor& logits, const at::Tensor& targets,
                            int64_t ignore_index, double temperature, bool check_targets) {
  if (!differentiates(logits)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return fused_logprob(logits, targets, ignore_index, temperature, check_targets);
  }
  return std::get<0>(call_with_statistics(
      {logits, targets, ignore_index, temperature, 0, LogprobForm::logprob}, check_targets));
}

std::tuple<at::Tensor, at::Tensor> logprob_lse_autograd(const at::Tensor& logits,
                                                        const at::Tensor& targets,
                                                        int64_t ignore_index, double temperature,
                                                        bool check_targets, int64_t vocab_start) {
  if (!differentiates(logits)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return fused_logprob_lse(logits, targets, ignore_index, temperature, check_targets,
                             vocab_start);
  }
  const auto [logprob, lse, entropy, statistics] = call_with_statistics(
      {logits, targets, ignore_index, temperature, vocab_start, LogprobForm::lse}, check_targets);
  return {logprob, lse};
}

std::tuple<at::Tensor, at::Tensor> logprob_entropy_autograd(const at::Tensor& logits,
                                                            const at::Tensor& targets,
                                                            int64_t ignore_index,
                                                            double temperature,
                                                            bool check_targets) {
  if (!differentiates(logits)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return fused_logprob_entropy(logits, targets, ignore_index, temperature, check_targets);
  }
  const auto [logprob, lse, entropy, statistics] = call_with_statistics(
      {logits, targets, ignore_index, temperature, 0, LogprobForm::entropy}, check_targets);
  return {logprob, entropy};
}

// --- backward ---------------------------------------------------------------------------------

// A node of its own, so that a second differentiation says what is missing.
class Backward : public AutogradFunction<Backward> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& logits, const at::Tensor& targets,
                            const at::Tensor& statistics, const OptionalTensor& entropy,
                            const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                            const OptionalTensor& grad_entropy, int64_t ignore_index,
                            double temperature, int64_t vocab_start, const std::string& form) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_backward(logits, targets, statistics, entropy, grad_logprob, grad_lse, grad_entropy,
                         ignore_index, temperature, vocab_start, c10::string_view(form));
  }

  static variable_list backward(AutogradContext*, const variable_list&) { return refused(); }

  template <typename... Arguments>
  static variable_list jvp(const variable_list&, const variable_list&, const Arguments&...) {
    return refused();
  }

 private:
  static variable_list refused() {
    WARPFUSE_CHECK(false, "_fused_logprob_backward", "logits",
                   "one differentiation (there is no double backward)", "a second");
  }
};

at::Tensor backward_autograd(const at::Tensor& logits, const at::Tensor& targets,
                             const at::Tensor& statistics, const OptionalTensor& entropy,
                             const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                             const OptionalTensor& grad_entropy, int64_t ignore_index,
                             double temperature, int64_t vocab_start, c10::string_view form) {
  return Backward::apply(logits, targets, statistics, entropy, grad_logprob, grad_lse, grad_entropy,
                         ignore_index, temperature, vocab_start, std::string(form));
}

// Autograd would take the gradient that overwrites the logits for their values.
void backward_in_place_autograd(const at::Tensor& logits, const at::Tensor& targets,
                                const at::Tensor& statistics, const OptionalTensor& entropy,
                                const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                                const OptionalTensor& grad_entropy, int64_t ignore_index,
                                double temperature, int64_t vocab_start, c10::string_view form) {
  WARPFUSE_CHECK(!differentiates(logits), "_fused_logprob_backward_", "logits",
                 "a tensor that autograd does not follow, such as logits.detach()",
                 "one that requires a gradient");
  at::AutoDispatchBelowAutograd below;
  call_backward_in_place(logits, targets, statistics, entropy, grad_logprob, grad_lse, grad_entropy,
                         ignore_index, temperature, vocab_start, form);
}

// A tensor that shares the logits' memory and was saved for a backward must be found changed.
void backward_in_place_counted(const at::Tensor& logits, const at::Tensor& targets,
                               const at::Tensor& statistics, const OptionalTensor& entropy,
                               const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                               const OptionalTensor& grad_entropy, int64_t ignore_index,
                               double temperature, int64_t vocab_start, c10::string_view form) {
  {
    at::AutoDispatchBelowADInplaceOrView below;
    call_backward_in_place(logits, targets, statistics, entropy, grad_logprob, grad_lse,
                           grad_entropy, ignore_index, temperature, vocab_start, form);
  }
  torch::autograd::impl::bump_version(logits);
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("fused_logprob", logprob_autograd);
  m.impl("fused_logprob_lse", logprob_lse_autograd);
  m.impl("fused_logprob_entropy", logprob_entropy_autograd);
  m.impl("_fused_logprob", with_statistics_autograd);
  m.impl("_fused_logprob_backward", backward_autograd);
  m.impl("_fused_logprob_backward_", backward_in_place_autograd);
}

WARPFUSE_LIBRARY_IMPL(ADInplaceOrView, m) {
  m.impl("_fused_logprob_backward_", backward_in_place_counted);
}

}  // namespace
}  // namespace warpfuse
