#include "deform.h"

#include <sstream>

#include "compare.h"
#include "inputs.h"

int64_t DeformShape::pixels() const {
  int64_t sum = 0;
  for (const auto& [height, width] : levels) {
    sum += height * width;
  }
  return sum;
}

std::string DeformShape::text() const {
  std::ostringstream text;
  text << "B " << batches << " Q " << queries << " H " << heads << " D " << channels << " P "
       << points << " levels";
  for (const auto& [height, width] : levels) {
    text << " " << height << "x" << width;
  }
  return text.str();
}

DeformInputs::DeformInputs(const DeformShape& shape, at::ScalarType dtype, const at::Device& device,
                           at::ScalarType location_dtype, at::ScalarType weight_dtype) {
  const auto levels = static_cast<int64_t>(shape.levels.size());
  shapes = at::empty({levels, 2}, at::kLong);
  starts = at::empty({levels}, at::kLong);
  int64_t start = 0;
  for (int64_t level = 0; level < levels; ++level) {
    const auto& [height, width] = shape.levels[level];
    shapes[level][0] = height;
    shapes[level][1] = width;
    starts[level] = start;
    start += height * width;
  }
  shapes = shapes.to(device);
  starts = starts.to(device);
  const auto options = at::TensorOptions(at::kDouble);
  value = at::randn({shape.batches, start, shape.heads, shape.channels}, options).to(device, dtype);
  locations =
      (at::rand({shape.batches, shape.queries, shape.heads, levels, shape.points, 2}, options) *
           1.4 -
       0.2)
          .to(device, location_dtype);
  weights = at::randn({shape.batches, shape.queries, shape.heads, levels, shape.points}, options)
                .to(device, weight_dtype);
}

at::Tensor deform_reference(const at::Tensor& value, const at::Tensor& shapes,
                            const at::Tensor& locations, const at::Tensor& weights) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); };
  const at::Tensor v = wide(value), w = wide(weights), sizes = shapes.cpu();
  const at::Tensor grid = wide(locations) * 2 - 1;
  const int64_t batches = v.size(0), heads = v.size(2), channels = v.size(3), queries = w.size(1);
  at::Tensor sum = at::zeros({batches * heads, channels, queries}, v.options());
  int64_t start = 0;
  for (int64_t level = 0; level < sizes.size(0); ++level) {
    const auto height = sizes[level][0].item<int64_t>(), width = sizes[level][1].item<int64_t>();
    const at::Tensor image = v.slice(1, start, start + height * width)
                                 .permute({0, 2, 3, 1})
                                 .reshape({batches * heads, channels, height, width});
    start += height * width;
    const auto by_head = [&](const at::Tensor& tensor) {
      return tensor.select(3, level).transpose(1, 2).flatten(0, 1);
    };
    const at::Tensor sampled = at::grid_sampler(image, by_head(grid), /*bilinear*/ 0, /*zeros*/ 0,
                                                /*align_corners=*/false);
    sum = sum + (sampled * by_head(w).unsqueeze(1)).sum(-1);
  }
  return sum.view({batches, heads * channels, queries}).transpose(1, 2);
}

at::Tensor deform_softmax(const at::Tensor& logits) {
  return logits.cpu().to(at::kDouble).flatten(-2).softmax(-1).view_as(logits);
}

Expected expected_deform(const DeformInputs& in, bool softmax) {
  constexpr double kEpsilons = 335;
  const at::Tensor weights = softmax ? deform_softmax(in.weights) : in.weights;
  // Besides roundings of terms: those of float32 coordinates, which move a point.
  const at::Tensor size = in.value.cpu().to(at::kDouble).abs();
  const at::Tensor largest = at::where(size.isfinite(), size, 0.0).max();
  const at::Tensor moved = (weights.cpu().to(at::kDouble).abs().sum({-2, -1}) * largest * 0.1)
                               .repeat_interleave(in.value.size(3), -1);
  const at::Tensor terms =
      deform_reference(in.value.abs(), in.shapes, in.locations, weights.abs()) + moved;
  return {deform_reference(in.value, in.shapes, in.locations, weights), terms * kEpsilons};
}

std::string deform_mismatch(const at::Tensor& output, const DeformInputs& inputs,
                            const Expected& expected) {
  if (output.scalar_type() != inputs.value.scalar_type() || !output.is_contiguous()) {
    return c10::str("not a contiguous ", inputs.value.scalar_type());
  }
  return mismatch(output, expected);
}

std::string deform_mismatch(const at::Tensor& output, const DeformInputs& inputs, bool softmax) {
  return deform_mismatch(output, inputs, expected_deform(inputs, softmax));
}
