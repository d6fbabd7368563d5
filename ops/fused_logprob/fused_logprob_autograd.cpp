#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "core/autograd.h"
#include "fused_logprob/logprob_inputs.h"

// No kernel for autocast: without one an operator takes its inputs as they are.

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// --- backward ---------------------------------------------------------------------------------

struct LogprobBackward
    : OnceDifferentiable<LogprobBackward, at::Tensor(const LogprobBackwardInputs&)> {
  static constexpr const char* kName = "_fused_logprob_backward";
  static constexpr const char* kArgument = "logits";
};

struct BackwardInPlace : Calls<BackwardInPlace, void(const LogprobBackwardInputs&)> {
  static constexpr const char* kName = "_fused_logprob_backward_";

  /// Autograd would take the gradient that overwrites the logits for their values.
  static void autograd(c10::DispatchKeySet keys, const LogprobBackwardInputs& inputs) {
    WARPFUSE_CHECK(!differentiates(inputs.logits), kName, "logits",
                   "a tensor that autograd does not follow, such as logits.detach()",
                   "one that requires a gradient");
    const at::AutoDispatchBelowAutograd below;
    redispatch(keys & c10::after_autograd_keyset, inputs);
  }

  /// Bumps the version, so that a backward that saved a tensor of the same memory finds it changed.
  static void in_place(c10::DispatchKeySet keys, const LogprobBackwardInputs& inputs) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      redispatch(keys & c10::after_ADInplaceOrView_keyset, inputs);
    }
    torch::autograd::impl::bump_version(inputs.logits);
  }
};

// --- forward ----------------------------------------------------------------------------------

// Saves the inputs, the statistics of the rows, and the entropy if it has a gradient.
struct LogprobForward : AutogradNode<LogprobForward, LogprobResults(const LogprobInputs&)> {
  static constexpr const char* kName = "_fused_logprob";

  static void save(AutogradContext* context, const variable_list& outputs,
                   const LogprobInputs& inputs) {
    const at::Tensor &lse = outputs[1], &entropy = outputs[2], &statistics = outputs[3];
    const bool has_lse = inputs.form == "lse", has_entropy = inputs.form == "entropy";
    context->save_for_backward(
        {inputs.logits, inputs.targets, statistics, has_entropy ? entropy : at::Tensor()});
    context->set_materialize_grads(false);
    context->saved_data["ignore_index"] = inputs.ignore_index;
    context->saved_data["temperature"] = inputs.temperature;
    context->saved_data["vocab_start"] = inputs.vocab_start;
    context->saved_data["form"] = std::string(inputs.form);
    variable_list constant = {statistics};
    if (!has_lse) {
      constant.push_back(lse);
    }
    if (!has_entropy) {
      constant.push_back(entropy);
    }
    context->mark_non_differentiable(constant);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto given = [](const at::Tensor& tensor) {
      return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
    };
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) {
      return variable_list(2);
    }
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    return {LogprobBackward::call({saved[0], saved[1], saved[2], given(saved[3]), given(grads[0]),
                                   given(grads[1]), given(grads[2]), data["ignore_index"].toInt(),
                                   data["temperature"].toDouble(), data["vocab_start"].toInt(),
                                   data["form"].toStringView()}),
            at::Tensor()};
  }

  // A result depends on its row alone: its tangent is the row's product with its gradient.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const LogprobInputs& inputs) {
    const at::Tensor& statistics = outputs[3];
    const at::Tensor t = tangents[0].to(statistics.scalar_type());
    const OptionalTensor one = at::ones_like(outputs[0]), none;
    const OptionalTensor entropy =
        inputs.form == "entropy" ? OptionalTensor(outputs[2]) : std::nullopt;
    const auto tangent = [&](const OptionalTensor& grad_logprob, const OptionalTensor& grad_lse,
                             const OptionalTensor& grad_entropy) {
      const at::Tensor gradient = LogprobBackward::call(
          {inputs.logits, inputs.targets, statistics, entropy, grad_logprob, grad_lse, grad_entropy,
           inputs.ignore_index, inputs.temperature, inputs.vocab_start, inputs.form});
      return (gradient * t).sum(-1);
    };
    return {tangent(one, none, none),
            inputs.form == "lse" ? tangent(none, one, none) : at::Tensor(),
            inputs.form == "entropy" ? tangent(none, none, one) : at::Tensor(), at::Tensor()};
  }
};

/// A public operator. Statistics are computed only where something differentiates.
template <LogprobForm kForm, typename... Shard>
struct FusedLogprob
    : Calls<FusedLogprob<kForm, Shard...>, FormResult<kForm>(const at::Tensor&, const at::Tensor&,
                                                             int64_t, double, bool, Shard...)> {
  static constexpr const char* kName = kFormOperators[static_cast<int>(kForm)];

  static FormResult<kForm> autograd(c10::DispatchKeySet keys, const at::Tensor& logits,
                                    const at::Tensor& targets, int64_t ignore_index,
                                    double temperature, bool check_targets, Shard... vocab_start) {
    if (differentiates(logits)) {
      return form_result<kForm>(LogprobForward::call(
          {logits, targets, ignore_index, temperature, check_targets,
           (int64_t{0} + ... + vocab_start), kFormNames[static_cast<int>(kForm)]}));
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    return FusedLogprob::redispatch(keys & c10::after_autograd_keyset, logits, targets,
                                    ignore_index, temperature, check_targets, vocab_start...);
  }

  static void register_in(torch::Library& m) { m.impl(kName, TORCH_FN(autograd)); }
};

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  FusedLogprob<LogprobForm::logprob>::register_in(m);
  FusedLogprob<LogprobForm::lse, int64_t>::register_in(m);
  FusedLogprob<LogprobForm::entropy>::register_in(m);
  LogprobForward::register_in(m);
  LogprobBackward::register_in(m);
  m.impl(BackwardInPlace::kName, TORCH_FN(kernel_of<&BackwardInPlace::autograd>));
}

WARPFUSE_LIBRARY_IMPL(ADInplaceOrView, m) {
  m.impl(BackwardInPlace::kName, TORCH_FN(kernel_of<&BackwardInPlace::in_place>));
}

}  // namespace
}  // namespace warpfuse
