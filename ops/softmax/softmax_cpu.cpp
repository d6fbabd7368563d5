#include <torch/library.h>

#include "common/parallel_rows.h"
#include "softmax/softmax.h"
#include "softmax/softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter softmax_calls("softmax.cpu");
Counter log_softmax_calls("log_softmax.cpu");
Counter softmax_backward_calls("softmax_backward.cpu");
Counter log_softmax_backward_calls("log_softmax_backward.cpu");
Counter algorithm_calls("softmax_algorithm.cpu");
Counter rows_branch("cpu.rows");
Counter column_branch("cpu.column");
Counter naive_branch("cpu.naive");

// A launch of one of the kernels of softmax_kernel_cpu.h on all rows.
template <typename Kernel>
auto on_rows(const Kernel& kernel) {
  return [&kernel](const auto& arguments) {
    (arguments.layout.inner == 1 ? rows_branch : column_branch).add();
    parallel_rows(arguments.layout.rows(), arguments.layout.columns,
                  [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); });
  };
}

at::Tensor softmax_cpu(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  return run_softmax("softmax", softmax_calls, self, dim, dtype, false, on_rows(softmax_rows_cpu));
}

at::Tensor log_softmax_cpu(const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype) {
  return run_softmax("log_softmax", log_softmax_calls, self, dim, dtype, true,
                     on_rows(softmax_rows_cpu));
}

at::Tensor softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                int64_t dim) {
  return run_softmax_backward("_softmax_backward", softmax_backward_calls, grad_output, output, dim,
                              false, on_rows(softmax_backward_rows_cpu));
}

at::Tensor log_softmax_backward_cpu(const at::Tensor& grad_output, const at::Tensor& output,
                                    int64_t dim) {
  return run_softmax_backward("_log_softmax_backward", log_softmax_backward_calls, grad_output,
                              output, dim, true, on_rows(softmax_backward_rows_cpu));
}

at::Tensor softmax_algorithm_cpu(const at::Tensor& self, int64_t dim, c10::string_view algorithm,
                                 bool log) {
  constexpr const char* kOp = "_softmax_algorithm";
  if (algorithm == "vector") {
    return run_softmax(kOp, algorithm_calls, self, dim, std::nullopt, log,
                       on_rows(softmax_rows_cpu));
  }
  WARPFUSE_CHECK(algorithm == "naive", kOp, "algorithm", "\"naive\" or \"vector\" on the CPU", '"',
                 algorithm, '"');
  const auto naive = [](const SoftmaxArguments& arguments) {
    naive_branch.add();
    parallel_rows(
        arguments.layout.rows(), arguments.layout.columns,
        [&](int64_t begin, int64_t end) { softmax_naive_rows_cpu(arguments, begin, end); });
  };
  return run_softmax(kOp, algorithm_calls, self, dim, std::nullopt, log, naive);
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
