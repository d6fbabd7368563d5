#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/softmax.h>

#include "common/autograd_function.h"
#include "common/registration.h"
#include "softmax/softmax.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <bool kLog>
at::Tensor call_forward(const at::Tensor& self, int64_t dim) {
  return kLog ? warpfuse::log_softmax(self, dim) : warpfuse::softmax(self, dim);
}

template <bool kLog>
at::Tensor call_backward(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>(
          kLog ? "warpfuse::_log_softmax_backward" : "warpfuse::_softmax_backward");
  return op.call(grad_output, output, dim);
}

// dx = y * (g - sum(g * y))       (softmax)
// dx = g - exp(y) * sum(g)        (log_softmax)
// The gradient with respect to g has the form of the first derivative again; that with respect to
// y is written in ATen's operators, so that it can be differentiated further.
template <bool kLog>
class Backward : public AutogradFunction<Backward<kLog>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& grad_output,
                            const at::Tensor& output, int64_t dim) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({grad_output, output});
    context->saved_data["dim"] = dim;
    return call_backward<kLog>(grad_output, output, dim);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& g = saved[0];
    const at::Tensor& y = saved[1];
    const at::Tensor& gg = grads[0];
    const int64_t dim = context->saved_data["dim"].toInt();
    if constexpr (kLog) {
      const at::Tensor probability = y.exp();
      const at::Tensor grad_g = gg - (gg * probability).sum(dim, true);
      const at::Tensor grad_y = -gg * probability * g.sum(dim, true);
      return {grad_g, grad_y, at::Tensor()};
    } else {
      const at::Tensor grad_g = call_backward<false>(gg, y, dim);
      const at::Tensor grad_y = gg * (g - (g * y).sum(dim, true)) - g * (gg * y).sum(dim, true);
      return {grad_g, grad_y, at::Tensor()};
    }
  }

  static variable_list jvp(const variable_list&, const variable_list& tangents, const at::Tensor& g,
                           const at::Tensor& y, int64_t dim) {
    at::Tensor result;
    if (tangents[0].defined()) {
      result = call_backward<kLog>(tangents[0], y, dim);
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
class Forward : public AutogradFunction<Forward<kLog>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, int64_t dim) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor output = call_forward<kLog>(self, dim);
    context->save_for_backward({output});
    context->saved_data["dim"] = dim;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor output = context->get_saved_variables()[0];
    return {call_backward<kLog>(grads[0], output, context->saved_data["dim"].toInt()),
            at::Tensor()};
  }

  // softmax's Jacobian is symmetric.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor&, int64_t dim) {
    const at::Tensor& t = tangents[0];
    return {kLog ? t - (t * outputs[0].exp()).sum(dim, true)
                 : call_backward<false>(t, outputs[0], dim)};
  }
};

template <bool kLog>
at::Tensor forward_autograd(const at::Tensor& self, int64_t dim,
                            std::optional<at::ScalarType> dtype) {
  // The conversion is ATen's own, so its gradient is too.
  return Forward<kLog>::apply(prepare_softmax(kLog ? "log_softmax" : "softmax", self, dim, dtype),
                              dim);
}

template <bool kLog>
at::Tensor backward_autograd(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim) {
  check_softmax_backward(kLog ? "_log_softmax_backward" : "_softmax_backward", grad_output, output,
                         dim);
  return Backward<kLog>::apply(grad_output, output, dim);
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("softmax", forward_autograd<false>);
  m.impl("log_softmax", forward_autograd<true>);
  m.impl("_softmax_backward", backward_autograd<false>);
  m.impl("_log_softmax_backward", backward_autograd<true>);
  // For benchmarks and tests: a call to backward() through it is an error, not silence.
  m.impl("_softmax_algorithm", torch::autograd::autogradNotImplementedFallback());
}

// --- Autocast: the rules of ATen's softmax ----------------------------------------------------

// On CUDA float16 and bfloat16 are computed, and returned, in float32, unless dtype says otherwise.
// On the CPU ATen leaves softmax as it is, which is the fallthrough that needs no kernel.
template <bool kLog>
at::Tensor forward_autocast_cuda(const at::Tensor& self, int64_t dim,
                                 std::optional<at::ScalarType> dtype) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  if (!dtype.has_value() && self.is_cuda() && self.is_floating_point() &&
      self.scalar_type() != at::kDouble) {
    dtype = at::kFloat;
  }
  return kLog ? warpfuse::log_softmax(self, dim, dtype) : warpfuse::softmax(self, dim, dtype);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) {
  m.impl("softmax", forward_autocast_cuda<false>);
  m.impl("log_softmax", forward_autocast_cuda<true>);
}

}  // namespace
}  // namespace warpfuse
