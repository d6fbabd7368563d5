#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <warpfuse/dropout_softmax.h>

#include <tuple>

#include "common/random.h"
#include "core/autocast.h"
#include "core/autograd.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

struct DropoutSoftmaxBackward
    : Calls<DropoutSoftmaxBackward,
            at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       int64_t, double, bool)> {
  static constexpr const char* kName = "_dropout_softmax_backward";
};

struct PlainBackward
    : Calls<PlainBackward, at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)> {
  static constexpr const char* kName = "_softmax_backward";
};

// --- gradients: those of dropout and softmax, then those of at::linear ------------------------

struct Linear
    : AutogradNode<Linear, std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                              const OptionalTensor&, double,
                                                              const OptionalTensor&, bool)> {
  static constexpr const char* kName = "_linear_dropout_softmax";

  static void save(AutogradContext* context, const variable_list& outputs, const at::Tensor& input,
                   const at::Tensor& weight, const OptionalTensor& bias, double dropout_p,
                   const OptionalTensor&, bool) {
    context->save_for_backward({input, weight, outputs[0], outputs[1]});
    context->mark_non_differentiable({outputs[1]});
    context->saved_data["dropout_p"] = dropout_p;
    context->saved_data["has_bias"] = bias.has_value() && bias->defined();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& output = saved[2];
    const at::Tensor grad_logits =
        grad_of_logits(grads[0], output, saved[3], context->saved_data["dropout_p"].toDouble());
    const at::Tensor rows = rows_of(grad_logits);
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      result[0] = grad_logits.matmul(weight);
    }
    if (context->needs_input_grad(1)) {
      result[1] = rows.t().matmul(rows_of(input));
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = rows.sum(0);
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& input, const at::Tensor& weight, const OptionalTensor&,
                           double dropout_p, const OptionalTensor&, bool) {
    at::Tensor t;  // of the logits
    const auto add = [&](const at::Tensor& part) { t = t.defined() ? t + part : part; };
    if (tangents[0].defined()) {
      add(at::linear(tangents[0], weight));
    }
    if (tangents[1].defined()) {
      add(at::linear(input, tangents[1]));
    }
    if (tangents[2].defined()) {
      add(tangents[2].expand_symint(outputs[0].sym_sizes()));
    }
    const at::Tensor kept = draws(outputs[1]) ? dropped(t, dropout_p, outputs[1]) : t;
    return {PlainBackward::call(kept, outputs[0], -1), at::Tensor()};
  }

 private:
  // [rows, columns]. Without columns reshape() could not tell the number of rows, and autograd.grad
  // with is_grads_batched has no flatten().
  static at::Tensor rows_of(const at::Tensor& tensor) {
    c10::SymInt rows = 1;
    for (const c10::SymInt& size : tensor.sym_sizes().slice(0, tensor.dim() - 1)) {
      rows *= size;
    }
    return tensor.reshape_symint({rows, tensor.sym_size(-1)});
  }

  // Without dropout there are no random numbers.
  static bool draws(const at::Tensor& rng) { return rng.sym_size(0) != 0; }

  static at::Tensor grad_of_logits(const at::Tensor& grad, const at::Tensor& output,
                                   const at::Tensor& rng, double dropout_p) {
    if (!draws(rng)) {
      return PlainBackward::call(grad, output, -1);
    }
    const at::Tensor no_statistics =
        at::empty({0}, output.options().dtype(statistics_dtype(output)));
    return DropoutSoftmaxBackward::call(grad, output, no_statistics, rng, -1, dropout_p, false);
  }
};

WARPFUSE_LIBRARY_IMPL(Autograd, m) { Linear::register_in(m); }

// --- Autocast: the rules of at::linear --------------------------------------------------------

template <at::DeviceType kDevice>
at::Tensor autocast(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                    double dropout_p, bool training, bool allow_split_float32) {
  const AutocastTo<kDevice> cast;
  return linear_dropout_softmax(cast(input), cast(weight), cast(bias), dropout_p, training,
                                allow_split_float32);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) { m.impl("linear_dropout_softmax", autocast<at::kCUDA>); }

WARPFUSE_LIBRARY_IMPL(AutocastCPU, m) { m.impl("linear_dropout_softmax", autocast<at::kCPU>); }

}  // namespace
}  // namespace warpfuse
