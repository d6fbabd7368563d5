#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>
#include <string_view>

namespace warpfuse {

/// dropout(scaled_masked_softmax(scores, ...)): attention in training, in one pass. The first eight
/// arguments mean the same as in scaled_masked_softmax; dropout_p, training and the random numbers
/// the same as in softmax_dropout. This is a separate operator, so attention without dropout has
/// nothing to do with random state.
///
/// Hidden keys stay exact zeros, forward and backward.
inline at::Tensor scaled_masked_softmax_dropout(
    const at::Tensor& scores, double scale = 1.0,
    const std::optional<at::Tensor>& attn_mask = std::nullopt, std::string_view causal = "none",
    const std::optional<at::Tensor>& query_positions = std::nullopt,
    const std::optional<at::Tensor>& key_lengths = std::nullopt, int64_t window = 0,
    std::optional<double> masked_value = std::nullopt, double dropout_p = 0.0,
    bool training = false) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, double, const std::optional<at::Tensor>&, c10::string_view,
      const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, int64_t,
      std::optional<double>, double, bool)>("warpfuse::scaled_masked_softmax_dropout");
  return op.call(scores, scale, attn_mask, causal, query_positions, key_lengths, window,
                 masked_value, dropout_p, training);
}

}  // namespace warpfuse
