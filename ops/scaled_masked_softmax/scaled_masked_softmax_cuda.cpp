#include "common/cuda_launch.h"
#include "common/registration.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "scaled_masked_softmax/scaled_masked_softmax_kernel.h"

namespace warpfuse {
namespace {

Counter forward_calls("scaled_masked_softmax.cuda");
Counter backward_calls("scaled_masked_softmax_backward.cuda");

at::Tensor forward_cuda(const at::Tensor& scores, double scale,
                        const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                        const std::optional<at::Tensor>& query_positions,
                        const std::optional<at::Tensor>& key_lengths, int64_t window,
                        std::optional<double> masked_value) {
  return run_masked_softmax(forward_calls, scores, scale,
                            {attn_mask, causal, query_positions, key_lengths, window, masked_value},
                            [&](const MaskedSoftmaxArguments& arguments) {
                              launch_on("scaled_masked_softmax", scores.device(),
                                        [&](cudaStream_t stream, Workspace& workspace) {
                                          return masked_softmax_forward_cuda(arguments, workspace,
                                                                             stream);
                                        });
                            });
}

at::Tensor backward_cuda(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                         const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                         const std::optional<at::Tensor>& query_positions,
                         const std::optional<at::Tensor>& key_lengths, int64_t window,
                         std::optional<double> masked_value) {
  return run_masked_softmax_backward(
      backward_calls, grad_output, output, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value},
      [&](const MaskedSoftmaxBackwardArguments& arguments) {
        launch_on("_scaled_masked_softmax_backward", output.device(),
                  [&](cudaStream_t stream, Workspace& workspace) {
                    return masked_softmax_backward_cuda(arguments, workspace, stream);
                  });
      });
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) {
  m.impl("scaled_masked_softmax", forward_cuda);
  m.impl("_scaled_masked_softmax_backward", backward_cuda);
}

}  // namespace
}  // namespace warpfuse
