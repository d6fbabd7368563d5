#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "common/check.h"
#include "common/counters.h"
#include "common/parallel_rows.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"
#include "scaled_masked_softmax/scaled_masked_softmax_kernel_cpu.h"

namespace warpfuse {
namespace {

Counter forward_calls("scaled_masked_softmax.cpu");
Counter backward_calls("scaled_masked_softmax_backward.cpu");

at::Tensor forward_cpu(const at::Tensor& scores, double scale,
                       const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                       const std::optional<at::Tensor>& query_positions,
                       const std::optional<at::Tensor>& key_lengths, int64_t window,
                       std::optional<double> masked_value) {
  const MaskArguments masks{attn_mask, causal, query_positions, key_lengths, window, masked_value};
  check_masks("scaled_masked_softmax", scores, masks);
  forward_calls.add();
  const at::Tensor input = scores.contiguous();
  at::Tensor output = at::empty_like(input);
  if (input.numel() > 0) {
    const MaskedSoftmaxArguments arguments{input.const_data_ptr(),
                                           output.mutable_data_ptr(),
                                           to_dtype(input.scalar_type()),
                                           scale,
                                           key_rules(input, masks),
                                           mask_view(input, masks)};
    parallel_rows(
        input.numel() / input.size(-1), input.size(-1),
        [&](int64_t begin, int64_t end) { masked_softmax_rows_cpu(arguments, begin, end); });
  }
  return output;
}

at::Tensor backward_cpu(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                        const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                        const std::optional<at::Tensor>& query_positions,
                        const std::optional<at::Tensor>& key_lengths, int64_t window,
                        std::optional<double> masked_value) {
  constexpr const char* kOp = "_scaled_masked_softmax_backward";
  const MaskArguments masks{attn_mask, causal, query_positions, key_lengths, window, masked_value};
  check_masks(kOp, output, masks);
  check_alike(kOp, "grad_output", grad_output, output);
  backward_calls.add();
  const at::Tensor g = grad_output.contiguous();
  const at::Tensor y = output.contiguous();
  at::Tensor grad_scores = at::empty_like(y);
  if (y.numel() > 0) {
    const MaskedSoftmaxBackwardArguments arguments{g.const_data_ptr(),
                                                   y.const_data_ptr(),
                                                   grad_scores.mutable_data_ptr(),
                                                   to_dtype(y.scalar_type()),
                                                   scale,
                                                   key_rules(y, masks),
                                                   mask_view(y, masks)};
    parallel_rows(y.numel() / y.size(-1), y.size(-1), [&](int64_t begin, int64_t end) {
      masked_softmax_backward_rows_cpu(arguments, begin, end);
    });
  }
  return grad_scores;
}

TORCH_LIBRARY_IMPL(warpfuse, CPU, m) {
  m.impl("scaled_masked_softmax", forward_cpu);
  m.impl("_scaled_masked_softmax_backward", backward_cpu);
}

}  // namespace
}  // namespace warpfuse
