#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/fused_logprob.h>

#include <string>

#include "fused_logprob/fused_logprob.h"

// No kernel for autocast: without one an operator takes its inputs as they are.

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// --- the private operators --------------------------------------------------------------------

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> call_with_statistics(
    const LogprobInputs& inputs, bool check_targets) {
  static const auto op =
      detail::find_operator<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
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

// (logprob), (logprob, lse) or (logprob, entropy). What is saved beside the inputs is what the
// kernels need of a row: its statistics, and its entropy where that has a gradient.
class Forward : public torch::autograd::Function<Forward> {
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
    if (inputs.form == LogprobForm::logprob) {
      return {logprob};
    }
    return {logprob, has_entropy ? entropy : lse};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list result(7);
    const auto given = [&](size_t i) {
      return i < grads.size() && grads[i].defined() ? OptionalTensor(grads[i]) : std::nullopt;
    };
    if (!given(0) && !given(1)) {
      return result;
    }
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const std::string form = data["form"].toStringRef();
    const bool has_entropy = form == "entropy";
    result[0] = call_backward(
        saved[0], saved[1], saved[2], has_entropy ? OptionalTensor(saved[3]) : std::nullopt,
        given(0), has_entropy ? std::nullopt : given(1), has_entropy ? given(1) : std::nullopt,
        data["ignore_index"].toInt(), data["temperature"].toDouble(), data["vocab_start"].toInt(),
        c10::string_view(form));
    return result;
  }
};

// Whether a gradient may be asked for. Without one, nothing is kept of a row.
bool differentiates(const at::Tensor& logits) {
  return c10::GradMode::is_enabled() && logits.defined() && logits.requires_grad();
}

at::Tensor logprob_autograd(const at::Tensor& logits, const at::Tensor& targets,
                            int64_t ignore_index, double temperature, bool check_targets) {
  if (!differentiates(logits)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return fused_logprob(logits, targets, ignore_index, temperature, check_targets);
  }
  return Forward::apply(logits, targets, ignore_index, temperature, check_targets, int64_t{0},
                        std::string("logprob"))[0];
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
  const variable_list out = Forward::apply(logits, targets, ignore_index, temperature,
                                           check_targets, vocab_start, std::string("lse"));
  return {out[0], out[1]};
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
  const variable_list out = Forward::apply(logits, targets, ignore_index, temperature,
                                           check_targets, int64_t{0}, std::string("entropy"));
  return {out[0], out[1]};
}

// --- backward ---------------------------------------------------------------------------------

// A node of its own, so that a second differentiation says what is missing.
class Backward : public torch::autograd::Function<Backward> {
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

  static variable_list backward(AutogradContext*, const variable_list&) {
    WARPFUSE_CHECK(false, "_fused_logprob_backward", "logits",
                   "one differentiation (there is no double backward)", "a second");
    return {};
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

TORCH_LIBRARY_IMPL(warpfuse, Autograd, m) {
  m.impl("fused_logprob", logprob_autograd);
  m.impl("fused_logprob_lse", logprob_lse_autograd);
  m.impl("fused_logprob_entropy", logprob_entropy_autograd);
  // For gradients that are written over the logits, where autograd is not asked.
  m.impl("_fused_logprob", torch::autograd::autogradNotImplementedFallback());
  m.impl("_fused_logprob_backward", backward_autograd);
  m.impl("_fused_logprob_backward_", backward_in_place_autograd);
}

TORCH_LIBRARY_IMPL(warpfuse, ADInplaceOrView, m) {
  m.impl("_fused_logprob_backward_", backward_in_place_counted);
}

}  // namespace
}  // namespace warpfuse
