#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace warpfuse {

// Dropout and softmax in one pass. Each element is dropped with probability dropout_p, exact to
// 2^-32; kept elements are multiplied by 1 / (1 - dropout_p). With training = false or dropout_p =
// 0, dropout is the identity, nothing is drawn, and the operators are softmax (of linear).
//
// self       any shape, strides and alignment; float64, float32, float16 or bfloat16
// dim        in [-rank, rank - 1]
// dropout_p  from 0 to 1
//
// An element's random number depends on its place in the contiguous tensor, not on the kernel or
// the launch. Seed and offset come from the default generator of the tensor's device
// (at::manual_seed repeats them; each replay of a CUDA graph draws others). The backward draws the
// numbers again, so no mask is saved. Under torch.func.vmap, `randomness` must say whether samples
// drop the same elements ("same") or not ("different"). Returns a contiguous tensor of self's shape
// and dtype. Throws c10::IndexError for a dim out of range, c10::Error for an integer dtype or a
// dropout_p that is not a probability.

/// softmax(dropout(self)) over dimension `dim`; a dropped element is 0 before the softmax. If `dim`
/// is not the last dimension, kept elements are first rounded to the dtype, as at::dropout does.
inline at::Tensor dropout_softmax(const at::Tensor& self, int64_t dim, double dropout_p = 0.5,
                                  bool training = true) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::dropout_softmax");
  return op.call(self, dim, dropout_p, training);
}

/// dropout(softmax(self)): the softmax is over dimension `dim`; the result is rounded once.
inline at::Tensor softmax_dropout(const at::Tensor& self, int64_t dim, double dropout_p = 0.5,
                                  bool training = true) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::softmax_dropout");
  return op.call(self, dim, dropout_p, training);
}

/// softmax(dropout(linear(input, weight, bias))) over the last dimension. The linear layer is
/// at::linear, with its settings for TF32 and reduced precision; its result becomes the output in
/// place. On GPUs of compute capability 9.0, one kernel computes up to 128 rows of about 8,500 to
/// 16,900 columns, in half precision, TF32 or (from 64 rows on) split float32. A row of the input
/// may then have up to 8 KiB, and from 11,300 columns on up to 16 KiB, or 128 KiB in float32. The
/// logits are neither written to memory nor rounded to the dtype.
///
/// input   [..., in]
/// weight  [out, in]
/// bias    [out]; all of one dtype; under autocast, the dtype that at::linear gets
///
/// allow_split_float32  If that kernel takes the shape, tensor cores may multiply float32 in parts
///                      of float16, which keep 22 bits of each factor. The logits are as close to
///                      the exact ones as at::linear's; a NaN or an infinity in the operands makes
///                      all probabilities that depend on it NaN.
inline at::Tensor linear_dropout_softmax(const at::Tensor& input, const at::Tensor& weight,
                                         const std::optional<at::Tensor>& bias = std::nullopt,
                                         double dropout_p = 0.5, bool training = true,
                                         bool allow_split_float32 = false) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool, bool)>(
      "warpfuse::linear_dropout_softmax");
  return op.call(input, weight, bias, dropout_p, training, allow_split_float32);
}

}  // namespace warpfuse
