#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

namespace warpfuse {

/// Multi-scale deformable attention (Zhu et al., "Deformable DETR", equation 3): for each batch b,
/// query q and head h
///
///     output[b, q, h*D:(h+1)*D] = sum over l, p of attention_weights[b, q, h, l, p] *
///         sample(value of level l, sampling_locations[b, q, h, l, p])
///
/// where sample() interpolates between four pixels as grid_sample(bilinear, zeros,
/// align_corners=False) does. The schema has the names and the layout of Deformable-DETR's
/// operator.
///
/// value               [B, S, H, D]: float64, float32, float16 or bfloat16; the pixels of all
///                     levels, one level after the other, row by row
/// spatial_shapes      [L, 2], int64: height and width of each level
/// level_start_index   [L], int64: the first pixel of each level; S is at least their sum
/// sampling_locations  [B, Q, H, L, P, 2]: x and y, each 0 to 1 from border to border of its level
/// attention_weights   [B, Q, H, L, P]
/// check_shapes        on a GPU, levels are checked only with this option, because the check waits
///                     for the stream; without it, reads outside the value add nothing. On the CPU
///                     levels are always checked
///
/// Locations and weights each have the value's dtype or float32, and any strides. Coordinates,
/// weights and sums are float32 (float64 for float64 values), whatever the dtypes: use float32
/// locations with half-precision values.
///
/// Returns [B, Q, H*D] in the value's dtype. A location outside the level, infinite or NaN adds
/// what zeros would; a corner outside adds nothing. NaN and infinity in the value and the weights
/// spread as in the formula.
///
/// Value (summed in float32), locations and weights have gradients; a second derivative is an
/// error. A location's gradient is 0 outside the level; at a pixel's border it is the gradient of
/// the side on which the location lies. On a GPU the value's gradient is summed in varying order.
/// If at::globalContext().deterministicAlgorithms() is set, it is summed in 64-bit fixed point, to
/// 2^-44 of the largest term or better. Autocast casts only value and weights.
///
/// Throws c10::Error for other dtypes, shapes and devices, and for levels where they are checked.
inline at::Tensor ms_deform_attn(const at::Tensor& value, const at::Tensor& spatial_shapes,
                                 const at::Tensor& level_start_index,
                                 const at::Tensor& sampling_locations,
                                 const at::Tensor& attention_weights, bool check_shapes = false) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, const at::Tensor&, bool)>(
          "warpfuse::ms_deform_attn");
  return op.call(value, spatial_shapes, level_start_index, sampling_locations, attention_weights,
                 check_shapes);
}

/// The same with attention_weights = softmax(attention_logits) over the L * P points of a row.
inline at::Tensor ms_deform_attn_softmax(const at::Tensor& value, const at::Tensor& spatial_shapes,
                                         const at::Tensor& level_start_index,
                                         const at::Tensor& sampling_locations,
                                         const at::Tensor& attention_logits,
                                         bool check_shapes = false) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, const at::Tensor&, bool)>(
          "warpfuse::ms_deform_attn_softmax");
  return op.call(value, spatial_shapes, level_start_index, sampling_locations, attention_logits,
                 check_shapes);
}

}  // namespace warpfuse
