#include <c10/core/impl/LocalDispatchKeySet.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/softmax.h>

#include <tuple>

#include "common/random.h"
#include "core/autograd.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

struct SoftmaxBackward
    : Calls<SoftmaxBackward, at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)> {
  static constexpr const char* kName = "_softmax_backward";
};

// --- gradients --------------------------------------------------------------------------------
// With keep the mask and k = keep / (1 - p):
//   dropout first:  y = softmax(x * k)   dx = k * y * (g - sum(y * g))      saved: y
//   softmax first:  y = s * k            dx = s * (g * k - sum(s * g * k))  saved: x, statistics
// y does not give s back where it was dropped, and x is kept alive by its producer anyway.

struct DropoutBackward
    : OnceDifferentiable<DropoutBackward,
                         at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, int64_t, double, bool)> {
  static constexpr const char* kName = "_dropout_softmax_backward";
};

struct DropoutForward : AutogradNode<DropoutForward, std::tuple<at::Tensor, at::Tensor, at::Tensor>(
                                                         const at::Tensor&, int64_t, double, bool,
                                                         const OptionalTensor&)> {
  static constexpr const char* kName = "_dropout_softmax";

  static void save(AutogradContext* context, const variable_list& outputs, const at::Tensor& self,
                   int64_t dim, double dropout_p, bool softmax_first, const OptionalTensor&) {
    context->save_for_backward({softmax_first ? self : outputs[0], outputs[1], outputs[2]});
    context->mark_non_differentiable({outputs[1], outputs[2]});
    context->saved_data["dim"] = dim;
    context->saved_data["dropout_p"] = dropout_p;
    context->saved_data["softmax_first"] = softmax_first;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    return {DropoutBackward::call(grads[0], saved[0], saved[1], saved[2],
                                  context->saved_data["dim"].toInt(),
                                  context->saved_data["dropout_p"].toDouble(),
                                  context->saved_data["softmax_first"].toBool()),
            at::Tensor()};
  }

  // With t the tangent of x: softmax's of t * k, or k times softmax's of t.
  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& self, int64_t dim, double dropout_p,
                           bool softmax_first, const OptionalTensor&) {
    const auto drop = [&](const at::Tensor& x) { return dropped(x, dropout_p, outputs[2]); };
    const at::Tensor& t = tangents[0];
    const at::Tensor result =
        softmax_first ? drop(SoftmaxBackward::call(t, warpfuse::softmax(self, dim), dim))
                      : SoftmaxBackward::call(drop(t), outputs[0], dim);
    return {result, at::Tensor(), at::Tensor()};
  }
};

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  DropoutForward::register_in(m);
  DropoutBackward::register_in(m);
}

// --- Autocast: the rules of ATen's softmax ----------------------------------------------------

template <bool kSoftmaxFirst>
at::Tensor autocast_cuda(const at::Tensor& self, int64_t dim, double dropout_p, bool training) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  const bool narrow =
      self.is_cuda() && self.is_floating_point() && self.scalar_type() != at::kDouble;
  const at::Tensor input = narrow ? self.to(at::kFloat) : self;
  return kSoftmaxFirst ? softmax_dropout(input, dim, dropout_p, training)
                       : dropout_softmax(input, dim, dropout_p, training);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) {
  m.impl("dropout_softmax", TORCH_FN(autocast_cuda<false>));
  m.impl("softmax_dropout", TORCH_FN(autocast_cuda<true>));
}

}  // namespace
}  // namespace warpfuse
