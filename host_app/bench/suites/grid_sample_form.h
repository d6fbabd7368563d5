#pragma once

#include "bench/suites/deform_inputs.h"

namespace warpfuse::host::bench {

// ms_deform_attn by grid_sample, as Deformable-DETR's ms_deform_attn_core_pytorch computes it: in
// one dtype, and with the samples of all points in memory.
struct GridSamples {
  std::vector<at::Tensor> images;  // of each level, [B * H, D, height, width]
  std::vector<at::Tensor> grids;   // [B * H, Q, P, 2], from -1 to 1
  at::Tensor samples;              // [B * H, D, Q, L * P]
};
GridSamples sample(const DeformInputs& in, const DeformSizes& sizes, c10::ScalarType dtype);

// [B, Q, H * D].
at::Tensor output_of(const GridSamples& sampled, const DeformInputs& in, const DeformSizes& sizes);

// Of value, locations and weights, as autograd makes them.
struct DeformGradients {
  at::Tensor value, locations, weights;
};
DeformGradients gradients_of(const GridSamples& sampled, const DeformInputs& in,
                             const DeformSizes& sizes);

// In double precision. The size of an element counts its terms and, times `coordinate_share`, what
// they change by where coordinates are off by as much as the level's extent.
Expected expected_output(const DeformInputs& image, const DeformSizes& sizes,
                         double coordinate_share);
struct ExpectedGradients {
  Expected value, locations, weights;
};
ExpectedGradients expected_gradients(const DeformInputs& image, const DeformSizes& sizes,
                                     double coordinate_share);

}  // namespace warpfuse::host::bench
