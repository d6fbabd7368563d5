#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <optional>

#include "common/check.h"
#include "common/counters.h"
#include "rowwise/tensor_layout.h"
#include "softmax/softmax_arguments.h"

namespace warpfuse {

/// The part of softmax's contract that all backends share: the checks, and dtype as
/// self.to(dtype) first.
at::Tensor prepare_softmax(const char* op, const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype);

/// The same for the backward: output and grad_output must be alike.
void check_softmax_backward(const char* op, const at::Tensor& grad_output, const at::Tensor& output,
                            int64_t dim);

/// The forward on any backend: checks, allocates, and calls launch(arguments) unless the tensor is
/// empty.
template <typename Launch>
at::Tensor run_softmax(const char* op, Counter& calls, const at::Tensor& self, int64_t dim,
                       std::optional<at::ScalarType> dtype, bool log, const Launch& launch) {
  const at::Tensor input = prepare_softmax(op, self, dim, dtype).contiguous();
  calls.add();
  at::Tensor output = at::empty_like(input);
  if (input.numel() > 0) {
    launch(SoftmaxArguments{input.const_data_ptr(), output.mutable_data_ptr(),
                            to_dtype(input.scalar_type()), row_layout(input, dim), log});
  }
  return output;
}

/// The backward alike.
template <typename Launch>
at::Tensor run_softmax_backward(const char* op, Counter& calls, const at::Tensor& grad_output,
                                const at::Tensor& output, int64_t dim, bool log,
                                const Launch& launch) {
  check_softmax_backward(op, grad_output, output, dim);
  calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor y = output.contiguous();
  at::Tensor grad_input = at::empty_like(y);
  if (y.numel() > 0) {
    launch(SoftmaxBackwardArguments{g.const_data_ptr(), y.const_data_ptr(),
                                    grad_input.mutable_data_ptr(), to_dtype(y.scalar_type()),
                                    row_layout(y, dim), log});
  }
  return grad_input;
}

}  // namespace warpfuse
