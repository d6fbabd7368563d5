#include "softmax/softmax.h"

#include <ATen/ops/empty.h>

#include "common/registration.h"

namespace warpfuse {

at::Tensor prepare_softmax(const char* op, const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype) {
  WARPFUSE_CHECK(self.defined(), op, "self", "a tensor", "an undefined one");
  if (dtype.has_value()) {
    WARPFUSE_CHECK(is_supported(*dtype), op, "dtype", "float64, float32, float16 or bfloat16",
                   *dtype);
  }
  const at::Tensor input = dtype.has_value() ? self.to(*dtype) : self;
  check_floating(op, "self", input);
  c10::maybe_wrap_dim(dim, input.dim());
  return input;
}

void check_softmax_backward(const char* op, const at::Tensor& grad_output, const at::Tensor& output,
                            int64_t dim) {
  check_floating(op, "output", output);
  check_alike(op, "grad_output", grad_output, output);
  c10::maybe_wrap_dim(dim, output.dim());
}

namespace {

// --- Meta: shapes and dtypes only -------------------------------------------------------------

at::Tensor empty_contiguous_like(const at::Tensor& tensor) {
  return at::empty_symint(tensor.sym_sizes(), tensor.options());
}

at::Tensor softmax_meta(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  return empty_contiguous_like(prepare_softmax("softmax", self, dim, dtype));
}

at::Tensor log_softmax_meta(const at::Tensor& self, int64_t dim,
                            std::optional<at::ScalarType> dtype) {
  return empty_contiguous_like(prepare_softmax("log_softmax", self, dim, dtype));
}

at::Tensor softmax_backward_meta(const at::Tensor& grad_output, const at::Tensor& output,
                                 int64_t dim) {
  check_softmax_backward("_softmax_backward", grad_output, output, dim);
  return empty_contiguous_like(output);
}

at::Tensor log_softmax_backward_meta(const at::Tensor& grad_output, const at::Tensor& output,
                                     int64_t dim) {
  check_softmax_backward("_log_softmax_backward", grad_output, output, dim);
  return empty_contiguous_like(output);
}

at::Tensor softmax_algorithm_meta(const at::Tensor& self, int64_t dim, c10::string_view, bool) {
  return empty_contiguous_like(prepare_softmax("_softmax_algorithm", self, dim, std::nullopt));
}

WARPFUSE_LIBRARY_IMPL(Meta, m) {
  m.impl("softmax", softmax_meta);
  m.impl("log_softmax", log_softmax_meta);
  m.impl("_softmax_backward", softmax_backward_meta);
  m.impl("_log_softmax_backward", log_softmax_backward_meta);
  m.impl("_softmax_algorithm", softmax_algorithm_meta);
}

}  // namespace
}  // namespace warpfuse
