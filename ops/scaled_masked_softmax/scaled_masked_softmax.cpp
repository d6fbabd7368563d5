#include "scaled_masked_softmax/scaled_masked_softmax.h"

#include <ATen/ops/empty.h>

#include "common/registration.h"

namespace warpfuse {
namespace {

// --- Meta: shapes and dtypes only -------------------------------------------------------------

at::Tensor forward_meta(const at::Tensor& scores, double,
                        const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                        const std::optional<at::Tensor>& query_positions,
                        const std::optional<at::Tensor>& key_lengths, int64_t window,
                        std::optional<double> masked_value) {
  check_masks("scaled_masked_softmax", scores,
              {attn_mask, causal, query_positions, key_lengths, window, masked_value});
  return at::empty_symint(scores.sym_sizes(), scores.options());
}

at::Tensor backward_meta(const at::Tensor& grad_output, const at::Tensor& output, double,
                         const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                         const std::optional<at::Tensor>& query_positions,
                         const std::optional<at::Tensor>& key_lengths, int64_t window,
                         std::optional<double> masked_value) {
  constexpr const char* kOp = "_scaled_masked_softmax_backward";
  check_masks(kOp, output, {attn_mask, causal, query_positions, key_lengths, window, masked_value});
  check_alike(kOp, "grad_output", grad_output, output);
  return at::empty_symint(output.sym_sizes(), output.options());
}

WARPFUSE_LIBRARY_IMPL(Meta, m) {
  m.impl("scaled_masked_softmax", forward_meta);
  m.impl("_scaled_masked_softmax_backward", backward_meta);
}

}  // namespace
}  // namespace warpfuse
