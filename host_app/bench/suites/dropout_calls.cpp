#include "bench/suites/dropout_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_dropout_backward.h>
#include <warpfuse/dispatch.h>

namespace warpfuse::host::bench {

at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, double, const at::Tensor&)>(
          "warpfuse::_dropout_mask");
  return op.call(like, kDropoutP, rng);
}

at::Tensor dropout_factors(const at::Tensor& keep) {
  return keep.to(at::kDouble) / (1 - kDropoutP);
}

at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::_dropout_softmax_backward");
  return op.call(grad_output, saved, statistics, rng, dim, kDropoutP, softmax_first);
}

at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep) {
  return at::native_dropout_backward(grad_output, keep, 1 / (1 - kDropoutP));
}

}  // namespace warpfuse::host::bench
