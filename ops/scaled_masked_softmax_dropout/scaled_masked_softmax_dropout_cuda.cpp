#include "common/cuda_launch.h"
#include "common/random_cuda.h"
#include "common/registration.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_kernel.h"

namespace warpfuse {
namespace {

Counter forward_calls("scaled_masked_softmax_dropout.cuda");
Counter backward_calls("scaled_masked_softmax_dropout_backward.cuda");

MaskedSoftmaxDropoutResult forward_on_cuda(const at::Tensor& scores, double scale,
                                           const std::optional<at::Tensor>& attn_mask,
                                           c10::string_view causal,
                                           const std::optional<at::Tensor>& query_positions,
                                           const std::optional<at::Tensor>& key_lengths,
                                           int64_t window, std::optional<double> masked_value,
                                           double dropout_p, const std::optional<at::Tensor>& rng) {
  return run_masked_dropout(
      forward_calls, scores, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value}, dropout_p, rng,
      [&] { return draw_rng_on_cuda(scores.device()); },
      [&](const MaskedSoftmaxDropoutArguments& arguments) {
        launch_on("_scaled_masked_softmax_dropout", scores.device(),
                  [&](cudaStream_t stream, Workspace& workspace) {
                    return masked_softmax_dropout_cuda(arguments, workspace, stream);
                  });
      });
}

at::Tensor backward_on_cuda(const at::Tensor& grad_output, const at::Tensor& scores,
                            const at::Tensor& statistics, const at::Tensor& rng, double scale,
                            const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                            const std::optional<at::Tensor>& query_positions,
                            const std::optional<at::Tensor>& key_lengths, int64_t window,
                            std::optional<double> masked_value, double dropout_p) {
  return run_masked_dropout_backward(
      backward_calls, grad_output, scores, statistics, rng, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value}, dropout_p,
      [&](const MaskedSoftmaxDropoutBackwardArguments& arguments) {
        launch_on("_scaled_masked_softmax_dropout_backward", scores.device(),
                  [&](cudaStream_t stream, Workspace& workspace) {
                    return masked_softmax_dropout_backward_cuda(arguments, workspace, stream);
                  });
      });
}

WARPFUSE_LIBRARY_IMPL(CUDA, m) {
  m.impl("_scaled_masked_softmax_dropout", forward_on_cuda);
  m.impl("_scaled_masked_softmax_dropout_backward", backward_on_cuda);
}

}  // namespace
}  // namespace warpfuse
