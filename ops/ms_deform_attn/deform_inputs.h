#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace warpfuse {

/// The tensors of a call, as the schema lists them.
struct DeformTensors {
  const at::Tensor& value;               // [B, S, H, D]
  const at::Tensor& spatial_shapes;      // [L, 2]
  const at::Tensor& level_start_index;   // [L]
  const at::Tensor& sampling_locations;  // [B, Q, H, L, P, 2]
  const at::Tensor& attention_weights;   // [B, Q, H, L, P]

  using Fields = std::tuple<const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, const at::Tensor&>;
  Fields fields() const {
    return {value, spatial_shapes, level_start_index, sampling_locations, attention_weights};
  }
};

}  // namespace warpfuse
