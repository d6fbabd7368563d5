#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "core/autograd.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- gradients --------------------------------------------------------------------------------

// dx = y * (g - sum(g * y))       (softmax)
// dx = g - exp(y) * sum(g)        (log_softmax)
// The gradient with respect to g has the form of the first derivative again. The one with respect
// to y is written in ATen's operators, so that it can be differentiated further.
template <bool kLog>
struct SoftmaxNodeBackward
    : AutogradNode<SoftmaxNodeBackward<kLog>,
                   at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)> {
  static constexpr const char* kName = kLog ? "_log_softmax_backward" : "_softmax_backward";

  static void save(AutogradContext* context, const variable_list&, const at::Tensor& grad_output,
                   const at::Tensor& output, int64_t dim) {
    context->save_for_backward({grad_output, output});
    context->saved_data["dim"] = dim;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& g = saved[0];
    const at::Tensor& y = saved[1];
    const at::Tensor& gg = grads[0];
    const int64_t dim = context->saved_data["dim"].toInt();
    if constexpr (kLog) {
      const at::Tensor probability = y.exp();
      return {gg - (gg * probability).sum(dim, true), -gg * probability * g.sum(dim, true)};
    } else {
      return {SoftmaxNodeBackward::call(gg, y, dim),
              gg * (g - (g * y).sum(dim, true)) - g * (gg * y).sum(dim, true)};
    }
  }

  static variable_list jvp(const variable_list&, const variable_list& tangents, const at::Tensor& g,
                           const at::Tensor& y, int64_t dim) {
    at::Tensor result;
    if (tangents[0].defined()) {
      result = SoftmaxNodeBackward::call(tangents[0], y, dim);
    }
    if (tangents[1].defined()) {
      const at::Tensor& t = tangents[1];
      const at::Tensor part = kLog ? -(y.exp() * t) * g.sum(dim, true)
                                   : t * (g - (g * y).sum(dim, true)) - y * (g * t).sum(dim, true);
      result = result.defined() ? result + part : part;
    }
    return {result};
  }
};

template <bool kLog>
struct SoftmaxNodeForward
    : AutogradNode<SoftmaxNodeForward<kLog>,
                   at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>)> {
  static constexpr const char* kName = kLog ? "log_softmax" : "softmax";

  static void save(AutogradContext* context, const variable_list& outputs, const at::Tensor&,
                   int64_t dim, std::optional<at::ScalarType>) {
    context->save_for_backward(outputs);
    context->saved_data["dim"] = dim;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor output = context->get_saved_variables()[0];
    return {SoftmaxNodeBackward<kLog>::call(grads[0], output, context->saved_data["dim"].toInt())};
  }

  // softmax's Jacobian is symmetric.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor&, int64_t dim, std::optional<at::ScalarType>) {
    const at::Tensor& t = tangents[0];
    return {kLog ? t - (t * outputs[0].exp()).sum(dim, true)
                 : SoftmaxNodeBackward<false>::call(t, outputs[0], dim)};
  }
};

// The conversion to dtype is ATen's own, so its gradient is too.
template <bool kLog>
at::Tensor forward_autograd(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim,
                            std::optional<at::ScalarType> dtype) {
  using Node = SoftmaxNodeForward<kLog>;
  return differentiates(self) ? Node::apply(converted(Node::kName, self, dtype), dim, std::nullopt)
                              : Node::below_autograd(keys, self, dim, dtype);
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("softmax", TORCH_FN(forward_autograd<false>));
  m.impl("log_softmax", TORCH_FN(forward_autograd<true>));
  SoftmaxNodeBackward<false>::register_in(m);
  SoftmaxNodeBackward<true>::register_in(m);
  // For benchmarks and tests: backward() through it is an error.
  m.impl("_softmax_algorithm", torch::autograd::autogradNotImplementedFallback());
}

// --- Autocast: the rules of ATen's softmax ----------------------------------------------------

// On CUDA float16 and bfloat16 are computed, and returned, in float32, unless dtype says otherwise.
// On the CPU ATen leaves softmax as it is: the fallthrough needs no kernel.
template <bool kLog>
at::Tensor forward_autocast_cuda(const at::Tensor& self, int64_t dim,
                                 std::optional<at::ScalarType> dtype) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  if (!dtype.has_value() && self.is_cuda() && self.is_floating_point() &&
      self.scalar_type() != at::kDouble) {
    dtype = at::kFloat;
  }
  return SoftmaxNodeForward<kLog>::call(self, dim, dtype);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) {
  m.impl("softmax", TORCH_FN(forward_autocast_cuda<false>));
  m.impl("log_softmax", TORCH_FN(forward_autocast_cuda<true>));
}

}  // namespace
}  // namespace warpfuse
