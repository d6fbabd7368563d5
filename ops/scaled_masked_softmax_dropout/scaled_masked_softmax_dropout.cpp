#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout.h"

#include "common/registration.h"

namespace warpfuse {

// --- checks -----------------------------------------------------------------------------------

void check_masked_dropout(const char* op, const at::Tensor& scores, const MaskArguments& masks,
                          double dropout_p, const std::optional<at::Tensor>& rng) {
  check_masks(op, scores, masks);
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, scores);
}

void check_masked_dropout_backward(const char* op, const at::Tensor& grad_output,
                                   const at::Tensor& scores, const at::Tensor& statistics,
                                   const at::Tensor& rng, const MaskArguments& masks,
                                   double dropout_p) {
  check_masks(op, scores, masks);
  check_alike(op, "grad_output", grad_output, scores);
  check_statistics(op, statistics, scores, -1);
  check_dropout_p(op, dropout_p);
  check_rng(op, rng, scores);
}

namespace {

// --- Meta: shapes and dtypes only -------------------------------------------------------------

MaskedSoftmaxDropoutResult forward_meta(const at::Tensor& scores, double,
                                        const std::optional<at::Tensor>& attn_mask,
                                        c10::string_view causal,
                                        const std::optional<at::Tensor>& query_positions,
                                        const std::optional<at::Tensor>& key_lengths,
                                        int64_t window, std::optional<double> masked_value,
                                        double dropout_p, const std::optional<at::Tensor>& rng) {
  check_masked_dropout("_scaled_masked_softmax_dropout", scores,
                       {attn_mask, causal, query_positions, key_lengths, window, masked_value},
                       dropout_p, rng);
  const auto options = scores.options();
  return {at::empty_symint(scores.sym_sizes(), options),
          at::empty_symint(statistics_sizes(scores, -1), options.dtype(statistics_dtype(scores))),
          at::empty({2}, options.dtype(at::kLong))};
}

at::Tensor backward_meta(const at::Tensor& grad_output, const at::Tensor& scores,
                         const at::Tensor& statistics, const at::Tensor& rng, double,
                         const std::optional<at::Tensor>& attn_mask, c10::string_view causal,
                         const std::optional<at::Tensor>& query_positions,
                         const std::optional<at::Tensor>& key_lengths, int64_t window,
                         std::optional<double> masked_value, double dropout_p) {
  check_masked_dropout_backward(
      "_scaled_masked_softmax_dropout_backward", grad_output, scores, statistics, rng,
      {attn_mask, causal, query_positions, key_lengths, window, masked_value}, dropout_p);
  return at::empty_symint(scores.sym_sizes(), scores.options());
}

WARPFUSE_LIBRARY_IMPL(Meta, m) {
  m.impl("_scaled_masked_softmax_dropout", forward_meta);
  m.impl("_scaled_masked_softmax_dropout_backward", backward_meta);
}

}  // namespace
}  // namespace warpfuse
