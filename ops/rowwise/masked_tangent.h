#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/promote_types.h>
#include <warpfuse/dispatch.h>

#include <optional>

#include "rowwise/mask_arguments.h"

namespace warpfuse {

/// The tangent of y = scaled_masked_softmax(scores, scale, masks) for those of the scores and of an
/// additive mask, each of which may be undefined. With t the tangent of the masked scores it is
/// y * (t - sum(t * y)), which is what the backward makes of t; but for keys with masked_value,
/// whose scores are constant and whose y is not.
inline at::Tensor masked_softmax_tangent(const at::Tensor& y, const at::Tensor& of_scores,
                                         const at::Tensor& of_mask, double scale,
                                         const MaskArguments& masks) {
  using OptionalTensor = std::optional<at::Tensor>;
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, double, const OptionalTensor&, c10::string_view,
      const OptionalTensor&, const OptionalTensor&, int64_t, std::optional<double>)>(
      "warpfuse::_scaled_masked_softmax_backward");
  const bool fills = masks.masked_value.has_value();
  const auto tangent = [&](const at::Tensor& t, const at::Tensor& output, double factor) {
    return op.call(fills ? t.masked_fill(masks.attn_mask->logical_not(), 0) : t, output, factor,
                   fills ? std::nullopt : masks.attn_mask, masks.causal, masks.query_positions,
                   masks.key_lengths, masks.window, std::nullopt);
  };
  at::Tensor result = of_scores.defined() ? tangent(of_scores, y, scale) : at::Tensor();
  if (of_mask.defined()) {  // in its own dtype where that is the wider one
    const at::ScalarType type = at::promote_types(of_mask.scalar_type(), y.scalar_type());
    const at::Tensor part =
        tangent(of_mask.to(type).expand_symint(y.sym_sizes()), y.to(type), 1.0).to(y.scalar_type());
    result = result.defined() ? result + part : part;
  }
  return result;
}

}  // namespace warpfuse
