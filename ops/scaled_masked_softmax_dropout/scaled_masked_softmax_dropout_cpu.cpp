#include "common/parallel_rows.h"
#include "common/random_cpu.h"
#include "common/registration.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter forward_calls("scaled_masked_softmax_dropout.cpu");
Counter backward_calls("scaled_masked_softmax_dropout_backward.cpu");

template <typename Arguments, typename Kernel>
void over_rows(const Arguments& arguments, const Kernel& kernel) {
  parallel_uneven_rows(arguments.rows, arguments.rules.keys,
                       [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); });
}

MaskedSoftmaxDropoutResult forward_cpu(const at::Tensor& scores, double scale,
                                       const std::optional<at::Tensor>& attn_mask,
                                       c10::string_view causal,
                                       const std::optional<at::Tensor>& query_positions,
                                       const std::optional<at::Tensor>& key_lengths, int64_t window,
                                       std::optional<double> masked_value, double dropout_p,
                                       const std::optional<at::Tensor>& rng) {
  return run_masked_dropout(forward_calls, scores, scale,
                            {attn_mask, causal, query_positions, key_lengths, window, masked_value},
                            dropout_p, rng, draw_rng_on_cpu,
                            [](const MaskedSoftmaxDropoutArguments& arguments) {
                              const Rng drawn = arguments.rng.get();
                              arguments.rng_used[0] = static_cast<int64_t>(drawn.seed);
                              arguments.rng_used[1] = static_cast<int64_t>(drawn.offset);
                              over_rows(arguments, masked_dropout_rows_cpu);
                            });
}

at::Tensor backward_cpu(const at::Tensor& grad_output, const at::Tensor& scores,
                        const at::Tensor& statistics, const at::Tensor& rng, double scale,
                        const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                        const std::optional<at::Tensor>& query_positions,
                        const std::optional<at::Tensor>& key_lengths, int64_t window,
                        std::optional<double> masked_value, double dropout_p) {
  return run_masked_dropout_backward(
      backward_calls, grad_output, scores, statistics, rng, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value}, dropout_p,
      [](const MaskedSoftmaxDropoutBackwardArguments& arguments) {
        over_rows(arguments, masked_dropout_backward_rows_cpu);
      });
}

WARPFUSE_LIBRARY_IMPL(CPU, m) {
  m.impl("_scaled_masked_softmax_dropout", forward_cpu);
  m.impl("_scaled_masked_softmax_dropout_backward", backward_cpu);
}

}  // namespace
}  // namespace warpfuse
