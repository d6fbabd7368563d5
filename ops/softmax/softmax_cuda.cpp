#include <string>

#include "common/cuda_launch.h"
#include "common/registration.h"
#include "softmax/softmax.h"
#include "softmax/softmax_kernel.h"

namespace warpfuse {
namespace {

Counter softmax_calls("softmax.cuda");
Counter log_softmax_calls("log_softmax.cuda");
Counter softmax_backward_calls("softmax_backward.cuda");
Counter log_softmax_backward_calls("log_softmax_backward.cuda");
Counter algorithm_calls("softmax_algorithm.cuda");

at::Tensor forward(const char* op, Counter& calls, const at::Tensor& self, int64_t dim,
                   std::optional<at::ScalarType> dtype, bool log) {
  return run_softmax(op, calls, self, dim, dtype, log, [&](const SoftmaxArguments& arguments) {
    launch_on(op, self.device(), [&](cudaStream_t stream, Workspace& workspace) {
      return softmax_forward_cuda(arguments, workspace, stream);
    });
  });
}

at::Tensor backward(const char* op, Counter& calls, const at::Tensor& grad_output,
                    const at::Tensor& output, int64_t dim, bool log) {
  return run_softmax_backward(
      op, calls, grad_output, output, dim, log, [&](const SoftmaxBackwardArguments& arguments) {
        launch_on(op, output.device(), [&](cudaStream_t stream, Workspace& workspace) {
          return softmax_backward_cuda(arguments, workspace, stream);
        });
      });
}

at::Tensor softmax_on_cuda(const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype) {
  return forward("softmax", softmax_calls, self, dim, dtype, false);
}

at::Tensor log_softmax_on_cuda(const at::Tensor& self, int64_t dim,
                               std::optional<at::ScalarType> dtype) {
  return forward("log_softmax", log_softmax_calls, self, dim, dtype, true);
}

at::Tensor softmax_backward_on_cuda(const at::Tensor& grad_output, const at::Tensor& output,
                                    int64_t dim) {
  return backward("_softmax_backward", softmax_backward_calls, grad_output, output, dim, false);
}

at::Tensor log_softmax_backward_on_cuda(const at::Tensor& grad_output, const at::Tensor& output,
                                        int64_t dim) {
  return backward("_log_softmax_backward", log_softmax_backward_calls, grad_output, output, dim,
                  true);
}

at::Tensor softmax_algorithm_on_cuda(const at::Tensor& self, int64_t dim,
                                     c10::string_view algorithm, bool log) {
  constexpr const char* kOp = "_softmax_algorithm";
  const std::string name(algorithm);
  std::string refusal;
  at::Tensor output = run_softmax(
      kOp, algorithm_calls, self, dim, std::nullopt, log, [&](const SoftmaxArguments& arguments) {
        launch_on(kOp, self.device(), [&](cudaStream_t stream, Workspace& workspace) {
          return softmax_algorithm_cuda(arguments, name, workspace, stream, &refusal);
        });
      });
  WARPFUSE_CHECK(refusal.empty(), kOp, "algorithm", refusal, '"', name, '"');
  return output;
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) {
  m.impl("softmax", softmax_on_cuda);
  m.impl("log_softmax", log_softmax_on_cuda);
  m.impl("_softmax_backward", softmax_backward_on_cuda);
  m.impl("_log_softmax_backward", log_softmax_backward_on_cuda);
  m.impl("_softmax_algorithm", softmax_algorithm_on_cuda);
}

}  // namespace
}  // namespace warpfuse
