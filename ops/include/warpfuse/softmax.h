#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <optional>

namespace warpfuse {

/// softmax(x)_j = exp(x_j - max x) / sum_k exp(x_k - max x) over dimension `dim`, as at::softmax.
///
/// self   any shape, strides and alignment; float64, float32, float16 or bfloat16 (any real dtype
///        if `dtype` is given). On a GPU, a non-contiguous input takes no memory besides the output
///        along the last dimension
/// dim    in [-rank, rank - 1]
/// dtype  compute and return the softmax of self.to(dtype)
///
/// Returns a contiguous tensor of self's shape. Sums are in float32 (float64 for float64), rounded
/// once. A row that is all -inf, or contains +inf or NaN, gives NaN, as at::softmax does.
/// Throws c10::IndexError for a dim out of range, c10::Error for an integer dtype.
inline at::Tensor softmax(const at::Tensor& self, int64_t dim,
                          std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>)>(
          "warpfuse::softmax");
  return op.call(self, dim, dtype);
}

/// log_softmax(x)_j = (x_j - max x) - log sum_k exp(x_k - max x), as at::log_softmax; arguments and
/// errors as in softmax. The maximum is subtracted first, so large offsets lose no precision.
inline at::Tensor log_softmax(const at::Tensor& self, int64_t dim,
                              std::optional<at::ScalarType> dtype = std::nullopt) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>)>(
          "warpfuse::log_softmax");
  return op.call(self, dim, dtype);
}

}  // namespace warpfuse
