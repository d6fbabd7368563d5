#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>
#include <warpfuse/linear_argmax.h>
#include <warpfuse/linear_residual.h>
#include <warpfuse/norm_linear.h>

#include "common/registration.h"
#include "core/autocast.h"

namespace warpfuse {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char *kNormLinear = "norm_linear", *kLinearResidual = "linear_residual",
                     *kLinearArgmax = "linear_argmax";

// For inference: differentiation is an error.
WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  for (const char* op : {kNormLinear, kLinearResidual, kLinearArgmax}) {
    m.impl(op, torch::autograd::autogradNotImplementedFallback());
  }
}

// --- Autocast: the rules of at::linear, for the norm and the residual connection too ------------

template <at::DeviceType kDevice>
struct Autocast {
  static at::Tensor norm(const at::Tensor& input, const at::Tensor& norm_weight,
                         const OptionalTensor& norm_bias, const at::Tensor& weight,
                         const OptionalTensor& bias, c10::string_view norm, double eps,
                         c10::string_view activation) {
    const AutocastTo<kDevice> cast;
    return norm_linear(cast(input), cast(norm_weight), cast(norm_bias), cast(weight), cast(bias),
                       norm, eps, activation);
  }

  static at::Tensor residual(const at::Tensor& input, const at::Tensor& weight,
                             const OptionalTensor& bias, const at::Tensor& residual) {
    const AutocastTo<kDevice> cast;
    return linear_residual(cast(input), cast(weight), cast(bias), cast(residual));
  }

  static at::Tensor argmax(const at::Tensor& input, const at::Tensor& weight,
                           const OptionalTensor& bias, const OptionalTensor& norm_weight,
                           const OptionalTensor& norm_bias, c10::string_view norm, double eps) {
    const AutocastTo<kDevice> cast;
    return linear_argmax(cast(input), cast(weight), cast(bias), cast(norm_weight), cast(norm_bias),
                         norm, eps);
  }

  static void define(torch::Library& m) {
    m.impl(kNormLinear, norm);
    m.impl(kLinearResidual, residual);
    m.impl(kLinearArgmax, argmax);
  }
};

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) { Autocast<at::kCUDA>::define(m); }

WARPFUSE_LIBRARY_IMPL(AutocastCPU, m) { Autocast<at::kCPU>::define(m); }

}  // namespace
}  // namespace warpfuse
