#include "dropout_softmax/dropout_softmax.h"

#include <ATen/ops/empty.h>

#include "common/registration.h"

namespace warpfuse {

// --- checks -----------------------------------------------------------------------------------

void check_dropout_softmax(const char* op, const at::Tensor& self, int64_t dim, double dropout_p,
                           const std::optional<at::Tensor>& rng) {
  check_floating(op, "self", self);
  c10::maybe_wrap_dim(dim, self.dim());
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, self);
}

void check_dropout_softmax_backward(const char* op, const at::Tensor& grad_output,
                                    const at::Tensor& saved, const at::Tensor& statistics,
                                    const at::Tensor& rng, int64_t dim, double dropout_p,
                                    bool softmax_first) {
  check_floating(op, "saved", saved);
  check_alike(op, "grad_output", grad_output, saved);
  c10::maybe_wrap_dim(dim, saved.dim());
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, saved);
  if (softmax_first) {
    check_statistics(op, statistics, saved, dim);
  }
}

void check_linear_dropout_softmax(const char* op, const at::Tensor& input, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias, double dropout_p,
                                  const std::optional<at::Tensor>& rng) {
  const auto check_like_input = [&](const char* argument, const at::Tensor& tensor) {
    WARPFUSE_CHECK(tensor.scalar_type() == input.scalar_type(), op, argument, input.scalar_type(),
                   tensor.scalar_type());
    check_same_device(op, argument, tensor, input);
  };
  check_floating(op, "input", input);
  WARPFUSE_CHECK(input.dim() >= 1, op, "input", "[..., in]", "0 dimensions");
  check_floating(op, "weight", weight);
  WARPFUSE_CHECK(weight.dim() == 2 && weight.sym_size(1) == input.sym_size(-1), op, "weight",
                 c10::str("[out, in] with in = ", input.sym_size(-1)), weight.sym_sizes());
  check_like_input("weight", weight);
  if (bias.has_value() && bias->defined()) {
    check_floating(op, "bias", *bias);
    WARPFUSE_CHECK(bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0), op, "bias",
                   c10::str("shape [out] = [", weight.sym_size(0), "]"), bias->sym_sizes());
    check_like_input("bias", *bias);
  }
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, input);
}

void check_dropout_mask(const char* op, const at::Tensor& like, double dropout_p,
                        const at::Tensor& rng) {
  WARPFUSE_CHECK(like.defined(), op, "like", "a tensor", "an undefined one");
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, like);
}

namespace {

// --- Meta: shapes and dtypes only -------------------------------------------------------------

DropoutSoftmaxResult forward_meta(const at::Tensor& self, int64_t dim, double dropout_p,
                                  bool softmax_first, const std::optional<at::Tensor>& rng) {
  check_dropout_softmax("_dropout_softmax", self, dim, dropout_p, rng);
  const auto options = self.options();
  return {at::empty_symint(self.sym_sizes(), options),
          at::empty_symint(statistics_sizes(self, dim, softmax_first),
                           options.dtype(statistics_dtype(self))),
          at::empty({2}, options.dtype(at::kLong))};
}

at::Tensor backward_meta(const at::Tensor& grad_output, const at::Tensor& saved,
                         const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                         double dropout_p, bool softmax_first) {
  check_dropout_softmax_backward("_dropout_softmax_backward", grad_output, saved, statistics, rng,
                                 dim, dropout_p, softmax_first);
  return at::empty_symint(saved.sym_sizes(), saved.options());
}

std::tuple<at::Tensor, at::Tensor> linear_meta(const at::Tensor& input, const at::Tensor& weight,
                                               const std::optional<at::Tensor>& bias,
                                               double dropout_p,
                                               const std::optional<at::Tensor>& rng) {
  check_linear_dropout_softmax("_linear_dropout_softmax", input, weight, bias, dropout_p, rng);
  auto sizes = c10::SymDimVector(input.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return {at::empty_symint(sizes, input.options()),
          at::empty({2}, input.options().dtype(at::kLong))};
}

at::Tensor mask_meta(const at::Tensor& like, double dropout_p, const at::Tensor& rng) {
  check_dropout_mask("_dropout_mask", like, dropout_p, rng);
  return at::empty_symint(like.sym_sizes(), like.options().dtype(at::kBool));
}

WARPFUSE_LIBRARY_IMPL(Meta, m) {
  m.impl("_dropout_softmax", forward_meta);
  m.impl("_dropout_softmax_backward", backward_meta);
  m.impl("_linear_dropout_softmax", linear_meta);
  m.impl("_dropout_mask", mask_meta);
}

}  // namespace
}  // namespace warpfuse
