#pragma once

#include "bench/suites/inputs.h"

namespace warpfuse::host::bench {

// The sizes of a row, batch x queries x heads x channels x points, and its levels.
struct DeformSizes {
  int64_t batches, queries, heads, channels, points;
  std::vector<std::array<int64_t, 2>> levels;  // height and width

  explicit DeformSizes(const Shape& shape);
  int64_t pixels() const;  // of all levels
  // Points that are sampled.
  int64_t samples() const;
};

// What a call is given, as ms_deform_attn names it; locations and weights are in the sums' dtype.
struct DeformInputs {
  at::Tensor value, shapes, starts, locations, weights;
  at::Tensor grad_output;  // backward

  // One image of the batch.
  DeformInputs image(int64_t b) const;
};

// Normal values and a softmax of normal weights. Locations are drawn uniformly from the image, or
// lie near a place of the query's own: its pixel where there are as many queries as pixels, as in
// an encoder; near one of 16 objects for up to 1024 queries, as in a decoder; else on a raster.
// From there a head's p-th point lies p pixels of its level in the head's direction, as
// Deformable-DETR starts, and normally distributed with 2 pixels around that.
Sets<DeformInputs> make_deform_inputs(const Case& c, const Setup& setup, bool uniform);

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
