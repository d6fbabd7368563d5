#include "bench/suites/deform_inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include <numbers>

namespace warpfuse::host::bench {
namespace {

constexpr double kSpreadPixels = 2;
constexpr int64_t kMaxDecoderQueries = 1024;
constexpr int64_t kObjects = 16;
constexpr double kObjectSize = 0.05;  // of the image
// Coordinates are rounded by less. A gradient of a location jumps where one pixel ends, so that
// rounding would choose it.
constexpr double kFromPixelBorder = 1e-3;

at::Tensor tensor_of(const std::vector<std::array<int64_t, 2>>& levels) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(levels.size()), 2}, at::kLong);
  auto* data = tensor.mutable_data_ptr<int64_t>();
  for (const auto& [height, width] : levels) {
    *data++ = height;
    *data++ = width;
  }
  return tensor;
}

at::Tensor starts_of(const DeformSizes& sizes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(sizes.levels.size())}, at::kLong);
  auto* data = tensor.mutable_data_ptr<int64_t>();
  int64_t start = 0;
  for (const auto& [height, width] : sizes.levels) {
    *data++ = start;
    start += height * width;
  }
  return tensor;
}

// x and y of the first `count` cells of a raster, [count, 2].
at::Tensor raster(int64_t count, int64_t rows, int64_t columns, const at::TensorOptions& options) {
  const at::Tensor cell = at::arange(count, options);
  const at::Tensor row = at::floor(cell / columns);
  return at::stack({(cell - row * columns + 0.5) / columns, (row + 0.5) / rows}, -1);
}

// A place of each query's own, [queries, 2].
at::Tensor places(const DeformSizes& sizes, const at::TensorOptions& options) {
  if (sizes.queries == sizes.pixels()) {
    std::vector<at::Tensor> levels;
    levels.reserve(sizes.levels.size());
    for (const auto& [height, width] : sizes.levels) {
      levels.push_back(raster(height * width, height, width, options));
    }
    return at::cat(levels);
  }
  if (sizes.queries <= kMaxDecoderQueries) {
    const at::Tensor object = at::randint(kObjects, {sizes.queries}, options.dtype(at::kLong));
    return at::rand({kObjects, 2}, options).index_select(0, object) +
           at::randn({sizes.queries, 2}, options) * kObjectSize;
  }
  const auto [height, width] = sizes.levels.front();
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  const auto columns =
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(sizes.queries) * aspect)));
  return raster(sizes.queries, (sizes.queries + columns - 1) / columns, columns, options);
}

// Pixels from its place to a head's points, in the heads' directions on a square: [heads, 1,
// points, 2].
at::Tensor ring(const DeformSizes& sizes, const at::TensorOptions& options) {
  const at::Tensor angle =
      at::arange(sizes.heads, options) * (2 * std::numbers::pi / static_cast<double>(sizes.heads));
  const at::Tensor direction = at::stack({angle.cos(), angle.sin()}, -1);
  const at::Tensor unit = direction / direction.abs().amax(-1, true);
  return unit.view({-1, 1, 1, 2}) * (at::arange(sizes.points, options) + 1).view({1, 1, -1, 1});
}

// Of one image: [queries, heads, levels, points, 2].
at::Tensor locations_of_image(const DeformSizes& sizes, bool uniform,
                              const at::TensorOptions& options) {
  const auto levels = static_cast<int64_t>(sizes.levels.size());
  const std::vector<int64_t> shape{sizes.queries, sizes.heads, levels, sizes.points, 2};
  const at::Tensor extent =
      tensor_of(sizes.levels).flip(-1).to(options.device(), at::kDouble).view({levels, 1, 2});
  at::Tensor pixels;
  if (uniform) {
    pixels = at::rand(shape, options) * extent;
  } else {
    const at::Tensor place = places(sizes, options).view({sizes.queries, 1, 1, 1, 2});
    pixels = place * extent + ring(sizes, options) + at::randn(shape, options) * kSpreadPixels;
  }
  pixels -= 0.5;  // from the middle of the first
  const at::Tensor low = at::floor(pixels);
  return (low + (pixels - low).clamp(kFromPixelBorder, 1 - kFromPixelBorder) + 0.5) / extent;
}

}  // namespace

DeformSizes::DeformSizes(const Shape& shape)
    : batches(shape.sizes[0]),
      queries(shape.sizes[1]),
      heads(shape.sizes[2]),
      channels(shape.sizes[3]),
      points(shape.sizes[4]),
      levels(shape.levels) {}

int64_t DeformSizes::pixels() const {
  int64_t sum = 0;
  for (const auto& [height, width] : levels) {
    sum += height * width;
  }
  return sum;
}

int64_t DeformSizes::samples() const {
  return batches * queries * heads * static_cast<int64_t>(levels.size()) * points;
}

DeformInputs DeformInputs::image(int64_t b) const {
  const auto part = [b](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, b, 1) : tensor;
  };
  return {part(value), shapes, starts, part(locations), part(weights), part(grad_output)};
}

Sets<DeformInputs> make_deform_inputs(const Case& c, const Setup& setup, bool uniform) {
  const DeformSizes sizes(c.shape);
  const at::TensorOptions options = options_of(c, setup), points = options.dtype(c.sum_dtype());
  const auto levels = static_cast<int64_t>(sizes.levels.size());
  Sets<DeformInputs> sets = make_sets<DeformInputs>(setup);
  add_tensors(*sets, &DeformInputs::value,
              {sizes.batches, sizes.pixels(), sizes.heads, sizes.channels}, options, setup.scores);
  add_tensors(*sets, &DeformInputs::locations,
              {sizes.batches, sizes.queries, sizes.heads, levels, sizes.points, 2}, points,
              [&](const at::Tensor& locations) {
                for (int64_t b = 0; b < sizes.batches; ++b) {
                  locations.select(0, b).copy_(
                      locations_of_image(sizes, uniform, options.dtype(at::kDouble)));
                }
              });
  add_tensors(*sets, &DeformInputs::weights,
              {sizes.batches, sizes.queries, sizes.heads, levels, sizes.points}, points,
              [](const at::Tensor& weights) {
                weights.normal_();
                weights.copy_(weights.flatten(-2).softmax(-1).view_as(weights));
              });
  const at::Tensor shapes = tensor_of(sizes.levels).to(setup.device),
                   starts = starts_of(sizes).to(setup.device);
  for (DeformInputs& set : *sets) {
    set.shapes = shapes;
    set.starts = starts;
  }
  if (!c.is_forward()) {
    add_tensors(*sets, &DeformInputs::grad_output,
                {sizes.batches, sizes.queries, sizes.heads * sizes.channels}, options);
  }
  return sets;
}

}  // namespace warpfuse::host::bench
