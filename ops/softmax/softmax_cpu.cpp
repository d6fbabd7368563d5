#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "common/counters.h"
#include "common/parallel_rows.h"
#include "softmax/softmax.h"
#include "softmax/softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter softmax_calls("softmax.cpu");
Counter log_softmax_calls("log_softmax.cpu");
Counter softmax_backward_calls("softmax_backward.cpu");
Counter log_softmax_backward_calls("log_softmax_backward.cpu");
Counter rows_branch("cpu.rows");
Counter column_branch("cpu.column");
Counter algorithm_calls("softmax_algorithm.cpu");
Counter naive_branch("cpu.naive");

void count_branch(const RowLayout& layout) {
  (layout.inner == 1 ? rows_branch : column_branch).add();
}

at::Tensor forward(const char* op, Counter& calls, const at::Tensor& self, int64_t dim,
                   std::optional<at::ScalarType> dtype, bool log) {
  const at::Tensor input = prepare_softmax(op, self, dim, dtype).contiguous();
  calls.add();
  at::Tensor output = at::empty_like(input);
  const SoftmaxArguments arguments{input.const_data_ptr(), output.mutable_data_ptr(),
                                   to_dtype(input.scalar_type()), row_layout(input, dim), log};
  if (input.numel() > 0) {
    count_branch(arguments.layout);
    parallel_rows(arguments.layout.rows(), arguments.layout.columns,
                  [&](int64_t begin, int64_t end) { softmax_rows_cpu(arguments, begin, end); });
  }
  return output;
}

at::Tensor backward(const char* op, Counter& calls, const at::Tensor& grad_output,
                    const at::Tensor& output, int64_t dim, bool log) {
  check_softmax_backward(op, grad_output, output, dim);
  calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor y = output.contiguous();
  at::Tensor grad_input = at::empty_like(y);
  const SoftmaxBackwardArguments arguments{g.const_data_ptr(),
                                           y.const_data_ptr(),
                                           grad_input.mutable_data_ptr(),
                                           to_dtype(y.scalar_type()),
                                           row_layout(y, dim),
                                           log};
  if (y.numel() > 0) {
    count_branch(arguments.layout);
    parallel_rows(
        arguments.layout.rows(), arguments.layout.columns,
        [&](int64_t begin, int64_t end) { softmax_backward_rows_cpu(arguments, begin, end); });
  }
  return grad_input;
}

at::Tensor softmax_cpu(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  return forward("softmax", softmax_calls, self, dim, dtype, false);
}

at::Tensor log_softmax_cpu(const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype) {
  return forward("log_softmax", log_softmax_calls, self, dim, dtype, true);
}

at::Tensor softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                int64_t dim) {
  return backward("_softmax_backward", softmax_backward_calls, grad_output, output, dim, false);
}

at::Tensor log_softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                    int64_t dim) {
  return backward("_log_softmax_backward", log_softmax_backward_calls, grad_output, output, dim, true);
}

at::Tensor softmax_algorithm_cpu(const at::Tensor& self, int64_t dim, c10::string_view algorithm,
                                 bool log) {
  constexpr const char* kOp = "_softmax_algorithm";
  if (algorithm == "vector") {
    return forward(kOp, algorithm_calls, self, dim, std::nullopt, log);
  }
  WARPFUSE_CHECK(algorithm == "naive", kOp, "algorithm", "\"naive\" or \"vector\" on the CPU", '"',
                 algorithm, '"');
  const at::Tensor input = prepare_softmax(kOp, self, dim, std::nullopt).contiguous();
  at::Tensor output = at::empty_like(input);
  const SoftmaxArguments arguments{input.const_data_ptr(), output.mutable_data_ptr(),
                                   to_dtype(input.scalar_type()), row_layout(input, dim), log};
  algorithm_calls.add();
  if (input.numel() > 0) {
    naive_branch.add();
    parallel_rows(
        arguments.layout.rows(), arguments.layout.columns,
        [&](int64_t begin, int64_t end) { softmax_naive_rows_cpu(arguments, begin, end); });
  }
  return output;
}

TORCH_LIBRARY_IMPL(warpfuse, CPU, m) {
  m.impl("softmax", softmax_cpu);
  m.impl("log_softmax", log_softmax_cpu);
  m.impl("_softmax_backward", softmax_backward_cpu);
  m.impl("_log_softmax_backward", log_softmax_backward_cpu);
  m.impl("_softmax_algorithm", softmax_algorithm_cpu);
}

}  // namespace
}  // namespace warpfuse
