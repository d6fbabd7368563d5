#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>

namespace warpfuse {

/// residual + input weight^T + bias: a linear layer and the residual connection after it.
///
/// input     [.., in]: float32, float16 or bfloat16; any strides
/// weight    [out, in]; this and all following tensors have the input's dtype and device
/// bias      [out] or none
/// residual  [.., out]; it is only read
///
/// Returns [.., out], contiguous. It has no gradient: differentiating it is an error. Autocast
/// gives all tensors its dtype.
///
/// warpfuse/norm_linear.h says which rows are one kernel with one rounding, and when a chain in a
/// CUDA graph reads its weights.
///
/// Throws c10::Error for another dtype, shape or device.
inline at::Tensor linear_residual(const at::Tensor& input, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias,
                                  const at::Tensor& residual) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&)>(
      "warpfuse::linear_residual");
  return op.call(input, weight, bias, residual);
}

}  // namespace warpfuse
