#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>
#include <string_view>

namespace warpfuse {

/// activation(norm(input) weight^T + bias), where norm is over the last dimension:
///
///   layer  (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * norm_weight + norm_bias
///   rms    x / sqrt(mean(x^2) + eps) * norm_weight
///
/// input        [.., in]: float32, float16 or bfloat16; any strides
/// norm_weight  [in]; this and all following tensors have the input's dtype and device
/// norm_bias    [in] or none; none for "rms"
/// weight       [out, in]
/// bias         [out] or none
/// norm         "layer" or "rms"
/// eps          not negative
/// activation   "none", "gelu" (with the error function) or "gelu_tanh"
///
/// Returns [.., out], contiguous. It has no gradient: differentiating it is an error. Autocast
/// gives all tensors its dtype.
///
/// Up to 16 rows, and on a GPU in half precision up to 128 where that is faster, are one kernel.
/// It computes in float32 and rounds once, at the end; in half precision a GPU also rounds
/// weight * norm_weight, which must stay below 65504 in float16. ATen's operators, which round
/// between them, take more rows, weights without a dense last dimension, and on a GPU rows that are
/// very long or are not whole, aligned packs of 16 bytes. If a kernel takes the rows only without
/// the norm (more than 16 rows with many outputs), ATen computes just the norm.
///
/// In a captured CUDA graph, kernels of these operators that directly follow each other form a
/// chain (norm_linear, linear_residual, linear_argmax, cached_attention_softmax). Each one reads
/// its weights, biases and positions while the previous one still runs. So these must not be
/// results of an operator of the chain. They may be results of any other kernel, even the directly
/// previous one (an update of a weight in place). Inputs and residuals may come from the chain.
///
/// Throws c10::Error for another dtype, shape or device, and for another norm, eps or activation.
inline at::Tensor norm_linear(const at::Tensor& input, const at::Tensor& norm_weight,
                              const std::optional<at::Tensor>& norm_bias, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias = std::nullopt,
                              std::string_view norm = "layer", double eps = 1e-5,
                              std::string_view activation = "none") {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&,
      const std::optional<at::Tensor>&, c10::string_view, double, c10::string_view)>(
      "warpfuse::norm_linear");
  return op.call(input, norm_weight, norm_bias, weight, bias, norm, eps, activation);
}

}  // namespace warpfuse
