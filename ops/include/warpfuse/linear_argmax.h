#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>
#include <string_view>

namespace warpfuse {

/// The index of the largest element of norm(input) weight^T + bias for each row: greedy decoding
/// without logits in memory. Equal to sample_tokens(norm_linear(...), step, 0, 0.0), except for the
/// order of sums.
///
/// input        [.., in]: float32, float16 or bfloat16; any strides
/// weight       [out, in]; this and all following tensors have the input's dtype and device; out
///              is at least 1. It may be a part of the rows of a larger tensor
/// bias         [out] or none
/// norm_weight  [in], or none for no norm
/// norm_bias    [in] or none; must be none without a norm_weight and for "rms"
/// norm         "layer" or "rms" (warpfuse/norm_linear.h)
/// eps          not negative
///
/// Returns [..], int64: the lowest index among the largest outputs after rounding to the input's
/// dtype, or -1 for a row whose outputs contain a NaN or are all -inf. It has no gradient.
/// Autocast gives all tensors its dtype.
///
/// warpfuse/norm_linear.h says which rows are one kernel, and when a chain in a CUDA graph reads
/// its weights. For rows that go to ATen, out is at most 2^20 (warpfuse/sample_tokens.h).
///
/// Throws c10::Error for another dtype, shape or device, and for another norm or eps.
inline at::Tensor linear_argmax(const at::Tensor& input, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias = std::nullopt,
                                const std::optional<at::Tensor>& norm_weight = std::nullopt,
                                const std::optional<at::Tensor>& norm_bias = std::nullopt,
                                std::string_view norm = "layer", double eps = 1e-5) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
      const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, c10::string_view,
      double)>("warpfuse::linear_argmax");
  return op.call(input, weight, bias, norm_weight, norm_bias, norm, eps);
}

}  // namespace warpfuse
