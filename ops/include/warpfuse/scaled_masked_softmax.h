#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>
#include <string_view>

namespace warpfuse {

/// Attention's softmax(scores * scale + mask) over the last dimension, in one pass.
///
/// scores           [B, H, Tq, Tk], [B, Tq, Tk] or [Tq, Tk] (B = 1); float64, float32, float16 or
///                  bfloat16; dim 0 is the batch; any strides
/// attn_mask        broadcast to the scores, aligned at the right; bool (true = visible, as in
///                  scaled_dot_product_attention) or additive (the scores' dtype or float32; the
///                  only mask with a gradient)
/// causal           "none"; "upper_left": query i sees keys j <= i; "lower_right": the last query
///                  sees the last key, j <= i + Tk - Tq
/// query_positions  [B, Tq], int32 or int64: key j is visible when j <= position
/// key_lengths      [B], int32 or int64: key j is visible when j < length
/// window           w > 0: the query's own key and the w - 1 keys before it; its own key is at its
///                  position if query_positions is given, else on the diagonal of `causal` ("none"
///                  uses the diagonal of "upper_left"); 0: no window
/// masked_value     a key that the boolean mask excludes takes this score instead of being hidden,
///                  as masked_fill does after the scaling
///
/// Positions and lengths are clamped, never checked: a negative one sees nothing, one past Tk sees
/// all. Keys hidden by a rule or the boolean mask give exact zeros, forward and backward, whatever
/// their scores are. A row is zero, whatever its scores are, if each of its keys is hidden or has
/// -inf in the additive mask. Everything else is as in ATen's chain of mul, add or masked_fill, and
/// softmax, rounded once. So visible scores that are all -inf give NaN. A NaN or +inf at a key
/// with -inf in the additive mask also gives NaN, if another key of the row has no -inf there.
/// Returns a contiguous tensor of the scores' shape and dtype.
inline at::Tensor scaled_masked_softmax(
    const at::Tensor& scores, double scale = 1.0,
    const std::optional<at::Tensor>& attn_mask = std::nullopt, std::string_view causal = "none",
    const std::optional<at::Tensor>& query_positions = std::nullopt,
    const std::optional<at::Tensor>& key_lengths = std::nullopt, int64_t window = 0,
    std::optional<double> masked_value = std::nullopt) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, double, const std::optional<at::Tensor>&, c10::string_view,
      const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, int64_t,
      std::optional<double>)>("warpfuse::scaled_masked_softmax");
  return op.call(scores, scale, attn_mask, causal, query_positions, key_lengths, window,
                 masked_value);
}

}  // namespace warpfuse
