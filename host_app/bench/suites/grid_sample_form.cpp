#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/stack.h>

#include "bench/suites/deform_inputs.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kBilinear = 0, kZeros = 0;  // GridSamplerInterpolation, GridSamplerPadding

// [B, Q, H, ..] as [B * H, Q, ..].
at::Tensor by_head(const at::Tensor& tensor) { return tensor.transpose(1, 2).flatten(0, 1); }

// And back.
at::Tensor by_query(const at::Tensor& tensor, const DeformSizes& sizes) {
  return tensor.unflatten(0, {-1, sizes.heads}).transpose(1, 2);
}

// [B * H, 1, Q, L * P].
at::Tensor weights_by_head(const DeformInputs& in, c10::ScalarType dtype) {
  return by_head(in.weights).flatten(-2).unsqueeze(1).to(dtype);
}

// The output's gradient as [B * H, D, Q, 1].
at::Tensor gradient_by_head(const DeformInputs& in, const DeformSizes& sizes,
                            c10::ScalarType dtype) {
  return by_head(in.grad_output.unflatten(-1, {sizes.heads, sizes.channels}))
      .transpose(1, 2)
      .unsqueeze(-1)
      .to(dtype);
}

at::Tensor grid_sample(const at::Tensor& image, const at::Tensor& grid) {
  return at::grid_sampler(image, grid, kBilinear, kZeros, /*align_corners=*/false);
}

// One image of the batch in double precision, of magnitudes.
DeformInputs magnitudes(const DeformInputs& in) {
  DeformInputs sizes = in;
  sizes.value = in.value.to(at::kDouble).abs();
  if (in.grad_output.defined()) {
    sizes.grad_output = in.grad_output.to(at::kDouble).abs();
  }
  return sizes;
}

// A grid with the points of one axis in the middle between two pixels. There half of what a
// derivative along that axis is made of is sampled.
at::Tensor between_pixels(const at::Tensor& grid, int64_t axis, int64_t pixels) {
  at::Tensor moved = grid.clone();
  const auto extent = static_cast<double>(pixels);
  const at::Tensor low = at::floor((grid.select(-1, axis) + 1) * (extent / 2) - 0.5);
  moved.select(-1, axis).copy_((low + 1) * (2 / extent) - 1);
  return moved;
}

// The sizes of a level's derivatives: along x, y and both. [B * H, D, Q, P], and the grid of both.
struct Slopes {
  at::Tensor x, y, both, grid;

  Slopes(const at::Tensor& image, const at::Tensor& points) {
    const int64_t height = image.size(-2), width = image.size(-1);
    const at::Tensor between_columns = between_pixels(points, 0, width);
    grid = between_pixels(between_columns, 1, height);
    x = grid_sample(image, between_columns) * 2;
    y = grid_sample(image, between_pixels(points, 1, height)) * 2;
    both = grid_sample(image, grid) * 4;
  }
};

}  // namespace

GridSamples sample(const DeformInputs& in, const DeformSizes& sizes, c10::ScalarType dtype) {
  GridSamples sampled;
  const at::Tensor value = in.value.to(dtype), grids = in.locations.to(dtype) * 2 - 1;
  std::vector<at::Tensor> samples;
  int64_t start = 0, level = 0;
  for (const auto& [height, width] : sizes.levels) {
    sampled.images.push_back(value.narrow(1, start, height * width)
                                 .permute({0, 2, 3, 1})
                                 .flatten(0, 1)
                                 .unflatten(-1, {height, width}));
    sampled.grids.push_back(by_head(grids.select(3, level++)));
    samples.push_back(grid_sample(sampled.images.back(), sampled.grids.back()));
    start += height * width;
  }
  sampled.samples = at::stack(samples, -2).flatten(-2);
  return sampled;
}

at::Tensor output_of(const GridSamples& sampled, const DeformInputs& in, const DeformSizes& sizes) {
  const at::Tensor weights = weights_by_head(in, sampled.samples.scalar_type());
  const at::Tensor sum = (sampled.samples * weights).sum(-1);  // [B * H, D, Q]
  return by_query(sum.transpose(1, 2), sizes).flatten(-2);
}

DeformGradients gradients_of(const GridSamples& sampled, const DeformInputs& in,
                             const DeformSizes& sizes) {
  const c10::ScalarType dtype = sampled.samples.scalar_type();
  const at::Tensor grad = gradient_by_head(in, sizes, dtype);
  const auto levels = static_cast<int64_t>(sizes.levels.size());
  const at::Tensor of_samples =
      (grad * weights_by_head(in, dtype)).unflatten(-1, {levels, sizes.points});
  std::vector<at::Tensor> values, locations;
  for (size_t level = 0; level < sizes.levels.size(); ++level) {
    const auto [of_image, of_grid] = at::grid_sampler_2d_backward(
        of_samples.select(-2, static_cast<int64_t>(level)), sampled.images[level],
        sampled.grids[level], kBilinear, kZeros, /*align_corners=*/false, {true, true});
    values.push_back(by_query(of_image.flatten(-2).transpose(1, 2), sizes));
    locations.push_back(by_query(of_grid * 2, sizes));
  }
  const at::Tensor of_weights =
      (grad * sampled.samples).sum(1).unflatten(-1, {levels, sizes.points});
  return {at::cat(values, 1), at::stack(locations, 3), by_query(of_weights, sizes)};
}

Expected expected_output(const DeformInputs& image, const DeformSizes& sizes,
                         double coordinate_share) {
  const DeformInputs wide = magnitudes(image);
  GridSamples sampled = sample(wide, sizes, at::kDouble);
  std::vector<at::Tensor> moved;
  for (size_t level = 0; level < sizes.levels.size(); ++level) {
    const auto [height, width] = sizes.levels[level];
    const Slopes slopes(sampled.images[level], sampled.grids[level]);
    moved.push_back(slopes.x * width + slopes.y * height);
  }
  sampled.samples += at::stack(moved, -2).flatten(-2) * coordinate_share;
  return {output_of(sample(image, sizes, at::kDouble), image, sizes),
          output_of(sampled, wide, sizes)};
}

ExpectedGradients expected_gradients(const DeformInputs& image, const DeformSizes& sizes,
                                     double coordinate_share) {
  const DeformInputs wide = magnitudes(image);
  GridSamples sampled = sample(wide, sizes, at::kDouble);
  const at::Tensor grad = gradient_by_head(wide, sizes, at::kDouble);
  std::vector<at::Tensor> moved, locations, grids;
  int64_t extent = 0;
  for (size_t level = 0; level < sizes.levels.size(); ++level) {
    const auto [height, width] = sizes.levels[level];
    const Slopes slopes(sampled.images[level], sampled.grids[level]);
    moved.push_back(slopes.x * width + slopes.y * height);
    const at::Tensor of_x =
        slopes.x + slopes.both * (coordinate_share * static_cast<double>(height));
    const at::Tensor of_y =
        slopes.y + slopes.both * (coordinate_share * static_cast<double>(width));
    locations.push_back(by_query(
        at::stack({(of_x * grad).sum(1) * width, (of_y * grad).sum(1) * height}, -1), sizes));
    grids.push_back(slopes.grid);
    extent = std::max(extent, width + height);
  }
  sampled.samples += at::stack(moved, -2).flatten(-2) * coordinate_share;
  const DeformGradients size = gradients_of(sampled, wide, sizes);
  sampled.grids = std::move(grids);  // where each of the four pixels has a quarter of the gradient
  const at::Tensor moved_value = gradients_of(sampled, wide, sizes).value *
                                 (4 * coordinate_share * static_cast<double>(extent));
  auto [of_value, of_locations, of_weights] =
      gradients_of(sample(image, sizes, at::kDouble), image, sizes);
  return {{std::move(of_value), size.value + moved_value},
          {std::move(of_locations),
           at::stack(locations, 3) * image.weights.to(at::kDouble).unsqueeze(-1)},
          {std::move(of_weights), size.weights}};
}

}  // namespace warpfuse::host::bench
