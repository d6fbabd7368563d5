#include "common/parallel_rows.h"
#include "common/registration.h"
#include "rowwise/cpu/limits.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "scaled_masked_softmax/scaled_masked_softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter forward_calls("scaled_masked_softmax.cpu");
Counter backward_calls("scaled_masked_softmax_backward.cpu");
Counter contiguous_masks("mask.contiguous");  // keys side by side: read where they are
Counter strided_masks("mask.strided");        // a copy of each row first
Counter streamed_results("streamed.scaled_masked_softmax");

// A launch of `kernel` on all rows.
template <typename Arguments, typename Kernel>
void run(const Arguments& arguments, const Kernel& kernel) {
  if (arguments.mask.kind != MaskKind::none) {
    (arguments.mask.key_stride == 1 ? contiguous_masks : strided_masks).add();
  }
  const int64_t keys = arguments.rules.keys;
  if (is_streamed(arguments.rows, keys * element_bytes(arguments.dtype))) {
    streamed_results.add();
  }
  parallel_uneven_rows(arguments.rows, keys,
                       [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); });
}

at::Tensor forward_cpu(const at::Tensor& scores, double scale,
                       const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                       const std::optional<at::Tensor>& query_positions,
                       const std::optional<at::Tensor>& key_lengths, int64_t window,
                       std::optional<double> masked_value) {
  return run_masked_softmax(
      forward_calls, scores, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value},
      [](const MaskedSoftmaxArguments& arguments) { run(arguments, masked_softmax_rows_cpu); });
}

at::Tensor backward_cpu(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                        const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                        const std::optional<at::Tensor>& query_positions,
                        const std::optional<at::Tensor>& key_lengths, int64_t window,
                        std::optional<double> masked_value) {
  return run_masked_softmax_backward(
      backward_calls, grad_output, output, scale,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value},
      [](const MaskedSoftmaxBackwardArguments& arguments) {
        run(arguments, masked_softmax_backward_rows_cpu);
      });
}

WARPFUSE_LIBRARY_IMPL(CPU, m) {
  m.impl("scaled_masked_softmax", forward_cpu);
  m.impl("_scaled_masked_softmax_backward", backward_cpu);
}

}  // namespace
}  // namespace warpfuse
