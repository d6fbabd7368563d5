#include <ATen/autocast_mode.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/softmax.h>

#include "common/autograd_function.h"
#include "common/dropout_tangent.h"
#include "common/registration.h"
#include "dropout_softmax/dropout_softmax.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// --- the private operators, through the dispatcher --------------------------------------------

DropoutSoftmaxResult call_forward(const at::Tensor& self, int64_t dim, double dropout_p,
                                  bool softmax_first, const OptionalTensor& rng) {
  static const auto op = detail::find_operator<DropoutSoftmaxResult(
      const at::Tensor&, int64_t, double, bool, const OptionalTensor&)>(
      "warpfuse::_dropout_softmax");
  return op.call(self, dim, dropout_p, softmax_first, rng);
}

at::Tensor call_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                         const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                         double dropout_p, bool softmax_first) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::_dropout_softmax_backward");
  return op.call(grad_output, saved, statistics, rng, dim, dropout_p, softmax_first);
}

std::tuple<at::Tensor, at::Tensor> call_linear(const at::Tensor& input, const at::Tensor& weight,
                                               const OptionalTensor& bias, double dropout_p,
                                               const OptionalTensor& rng) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, double, const OptionalTensor&)>(
      "warpfuse::_linear_dropout_softmax");
  return op.call(input, weight, bias, dropout_p, rng);
}

at::Tensor call_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                 int64_t dim) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>(
          "warpfuse::_softmax_backward");
  return op.call(grad_output, output, dim);
}

// --- gradients --------------------------------------------------------------------------------
// With keep the mask and k = keep / (1 - p):
//   dropout first:  y = softmax(x * k)   dx = k * y * (g - sum(y * g))      saved: y
//   softmax first:  y = s * k            dx = s * (g * k - sum(s * g * k))  saved: x, row
//   statistics
// s cannot be had from y where it was dropped, and x is kept alive by what made it anyway.

class Forward : public AutogradFunction<Forward> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& self, int64_t dim,
                               double dropout_p, bool softmax_first, const OptionalTensor& rng) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto [output, statistics, rng_used] =
        call_forward(self, dim, dropout_p, softmax_first, rng);
    context->save_for_backward({softmax_first ? self : output, statistics, rng_used});
    context->mark_non_differentiable({statistics, rng_used});
    context->saved_data["dim"] = dim;
    context->saved_data["dropout_p"] = dropout_p;
    context->saved_data["softmax_first"] = softmax_first;
    return {output, statistics, rng_used};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    variable_list result(5);
    result[0] = call_backward(
        grads[0], saved[0], saved[1], saved[2], context->saved_data["dim"].toInt(),
        context->saved_data["dropout_p"].toDouble(), context->saved_data["softmax_first"].toBool());
    return result;
  }

  // With t the tangent of x: softmax's of t * k, or k times softmax's of t.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& self, int64_t dim, double dropout_p,
                           bool softmax_first, const OptionalTensor&) {
    const at::Tensor& t = tangents[0];
    const auto drop = [&](const at::Tensor& x) { return dropped(x, dropout_p, outputs[2]); };
    const at::Tensor result =
        softmax_first ? drop(call_softmax_backward(t, warpfuse::softmax(self, dim), dim))
                      : call_softmax_backward(drop(t), outputs[0], dim);
    return {result, at::Tensor(), at::Tensor()};
  }
};

class Linear : public AutogradFunction<Linear> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const at::Tensor& weight, const OptionalTensor& bias,
                               double dropout_p, const OptionalTensor& rng) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto [output, rng_used] = call_linear(input, weight, bias, dropout_p, rng);
    context->save_for_backward({input, weight, output, rng_used});
    context->mark_non_differentiable({rng_used});
    context->saved_data["dropout_p"] = dropout_p;
    context->saved_data["has_bias"] = bias.has_value() && bias->defined();
    return {output, rng_used};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& output = saved[2];
    const auto options = output.options().dtype(statistics_dtype(output));
    const at::Tensor grad_logits =
        call_backward(grads[0], output, at::empty({0}, options), saved[3], -1,
                      context->saved_data["dropout_p"].toDouble(), false);
    const at::Tensor rows = grad_logits.reshape_symint({-1, weight.sym_size(0)});
    variable_list result(5);
    if (context->needs_input_grad(0)) {
      result[0] = grad_logits.matmul(weight);
    }
    if (context->needs_input_grad(1)) {
      result[1] = rows.t().matmul(input.reshape_symint({-1, weight.sym_size(1)}));
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = rows.sum(0);
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& input, const at::Tensor& weight, const OptionalTensor&,
                           double dropout_p, const OptionalTensor&) {
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
    return {call_softmax_backward(dropped(t, dropout_p, outputs[1]), outputs[0], -1), at::Tensor()};
  }
};

// A node of its own, so that a second differentiation says what is missing.
class Backward : public AutogradFunction<Backward> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& grad_output,
                            const at::Tensor& saved, const at::Tensor& statistics,
                            const at::Tensor& rng, int64_t dim, double dropout_p,
                            bool softmax_first) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_backward(grad_output, saved, statistics, rng, dim, dropout_p, softmax_first);
  }

  static variable_list backward(AutogradContext*, const variable_list&) { return refused(); }

  template <typename... Arguments>
  static variable_list jvp(const variable_list&, const variable_list&, const Arguments&...) {
    return refused();
  }

 private:
  static variable_list refused() {
    WARPFUSE_CHECK(false, "_dropout_softmax_backward", "grad_output",
                   "one differentiation (there is no double backward)", "a second");
  }
};

at::Tensor backward_autograd(const at::Tensor& grad_output, const at::Tensor& saved,
                             const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                             double dropout_p, bool softmax_first) {
  return Backward::apply(grad_output, saved, statistics, rng, dim, dropout_p, softmax_first);
}

DropoutSoftmaxResult forward_autograd(const at::Tensor& self, int64_t dim, double dropout_p,
                                      bool softmax_first, const OptionalTensor& rng) {
  const variable_list results = Forward::apply(self, dim, dropout_p, softmax_first, rng);
  return {results[0], results[1], results[2]};
}

std::tuple<at::Tensor, at::Tensor> linear_autograd(const at::Tensor& input,
                                                   const at::Tensor& weight,
                                                   const OptionalTensor& bias, double dropout_p,
                                                   const OptionalTensor& rng) {
  const variable_list results = Linear::apply(input, weight, bias, dropout_p, rng);
  return {results[0], results[1]};
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("_dropout_softmax", forward_autograd);
  m.impl("_linear_dropout_softmax", linear_autograd);
  m.impl("_dropout_softmax_backward", backward_autograd);
}

// --- the public operators, on every backend ---------------------------------------------------
// They are made of others, each with its gradient.

template <bool kSoftmaxFirst>
at::Tensor dropout_and_softmax(const at::Tensor& self, int64_t dim, double dropout_p,
                               bool training) {
  check_dropout_softmax(kSoftmaxFirst ? "softmax_dropout" : "dropout_softmax", self, dim, dropout_p,
                        std::nullopt);
  return training && dropout_p > 0
             ? std::get<0>(call_forward(self, dim, dropout_p, kSoftmaxFirst, std::nullopt))
             : warpfuse::softmax(self, dim);
}

at::Tensor linear_and_dropout_and_softmax(const at::Tensor& input, const at::Tensor& weight,
                                          const OptionalTensor& bias, double dropout_p,
                                          bool training) {
  check_linear_dropout_softmax("linear_dropout_softmax", input, weight, bias, dropout_p,
                               std::nullopt);
  return training && dropout_p > 0
             ? std::get<0>(call_linear(input, weight, bias, dropout_p, std::nullopt))
             : warpfuse::softmax(at::linear(input, weight, bias), -1);
}

WARPFUSE_LIBRARY_IMPL(CompositeImplicitAutograd, m) {
  m.impl("dropout_softmax", dropout_and_softmax<false>);
  m.impl("softmax_dropout", dropout_and_softmax<true>);
  m.impl("linear_dropout_softmax", linear_and_dropout_and_softmax);
}

// Under vmap too: what they are made of knows what its randomness means.
WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  m.impl("dropout_softmax", dropout_and_softmax<false>);
  m.impl("softmax_dropout", dropout_and_softmax<true>);
  m.impl("linear_dropout_softmax", linear_and_dropout_and_softmax);
}

// --- Autocast: the rules of ATen's softmax and linear -----------------------------------------

template <bool kSoftmaxFirst>
at::Tensor softmax_autocast_cuda(const at::Tensor& self, int64_t dim, double dropout_p,
                                 bool training) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  const bool narrow =
      self.is_cuda() && self.is_floating_point() && self.scalar_type() != at::kDouble;
  const at::Tensor input = narrow ? self.to(at::kFloat) : self;
  return kSoftmaxFirst ? softmax_dropout(input, dim, dropout_p, training)
                       : dropout_softmax(input, dim, dropout_p, training);
}

template <at::DeviceType kDevice, c10::DispatchKey kKey>
at::Tensor linear_autocast(const at::Tensor& input, const at::Tensor& weight,
                           const OptionalTensor& bias, double dropout_p, bool training) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice);
  const auto cast = [&](const auto& tensor) {
    return at::autocast::cached_cast(dtype, tensor, kDevice);
  };
  return linear_dropout_softmax(cast(input), cast(weight), cast(bias), dropout_p, training);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) {
  m.impl("dropout_softmax", softmax_autocast_cuda<false>);
  m.impl("softmax_dropout", softmax_autocast_cuda<true>);
  m.impl("linear_dropout_softmax", linear_autocast<at::kCUDA, c10::DispatchKey::AutocastCUDA>);
}

WARPFUSE_LIBRARY_IMPL(AutocastCPU, m) {
  m.impl("linear_dropout_softmax", linear_autocast<at::kCPU, c10::DispatchKey::AutocastCPU>);
}

}  // namespace
}  // namespace warpfuse
