// ms_deform_attn and, with points drawn from all of the image, ms_deform_attn_uniform: shapes are
// batch x queries x heads x channels x points and levels. The backward gives all three gradients.
// ATen's is Deformable-DETR's form by grid_sample, in float32 where the value has half precision,
// as autocast runs it; "classic" is a kernel like Deformable-DETR's own, one thread for each
// channel.

#include <warpfuse/dispatch.h>
#include <warpfuse/ms_deform_attn.h>

#include <tuple>

#include "bench/suites/deform_inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace ms_deform_attn_suite {
namespace {

constexpr const char* kAlgorithm = "warpfuse_lab::ms_deform_attn_algorithm";

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Outputs outputs_of(Three gradients) {
  auto [value, locations, weights] = std::move(gradients);
  return {std::move(value), {std::move(locations), std::move(weights)}};
}

// --- calls ------------------------------------------------------------------------------------

Outputs warpfuse_forward(const DeformInputs& in) {
  return ms_deform_attn(in.value, in.shapes, in.starts, in.locations, in.weights);
}

Outputs warpfuse_backward(const DeformInputs& in) {
  static const auto op = detail::find_operator<Three(
      const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&,
      const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
      "warpfuse::_ms_deform_attn_backward");
  return outputs_of(op.call(in.grad_output, std::nullopt, in.value, in.shapes, in.starts,
                            in.locations, in.weights));
}

Outputs classic_forward(const DeformInputs& in) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, const at::Tensor&)>(
          "warpfuse_host::classic_deform");
  return op.call(in.value, in.shapes, in.starts, in.locations, in.weights);
}

Outputs classic_backward(const DeformInputs& in) {
  static const auto op =
      detail::find_operator<Three(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
          "warpfuse_host::classic_deform_backward");
  return outputs_of(
      op.call(in.grad_output, in.value, in.shapes, in.starts, in.locations, in.weights));
}

Outputs aten_forward(const Case& c, const DeformInputs& in) {
  const DeformSizes sizes(c.shape);
  return output_of(sample(in, sizes, c.sum_dtype()), in, sizes).to(c.dtype).contiguous();
}

// What a forward has kept is made by the first call, so that a lack of memory is this variant's;
// and once for all inputs, since it is larger than any cache.
std::function<Outputs(int64_t)> aten_backward(const Case& c, const Sets<DeformInputs>& sets) {
  const auto kept = std::make_shared<std::optional<GridSamples>>();
  return on(sets, [c, sets, kept](const DeformInputs& in) {
    const DeformSizes sizes(c.shape);
    if (!*kept) {
      *kept = sample(sets->front(), sizes, c.sum_dtype());
    }
    auto [value, locations, weights] = gradients_of(**kept, in, sizes);
    return Outputs{value.to(c.dtype), {std::move(locations), std::move(weights)}};
  });
}

// --- checks -----------------------------------------------------------------------------------

// Of a level's extent, two roundings of a coordinate, as a part of what is allowed of the terms.
double coordinate_share(const Case& c) {
  const double roundings = c.sum_dtype() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                        : std::numeric_limits<float>::epsilon();
  return roundings / tolerance_of(c.dtype, /*of_aten=*/false);
}

// Image by image, since the reference has each sample in double precision.
double error_of(const Case& c, const DeformInputs& in, const Outputs& outputs) {
  const DeformSizes sizes(c.shape);
  const auto has_images = [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == sizes.batches;
  };
  if (!has_images(outputs.result) || !std::ranges::all_of(outputs.others, has_images)) {
    return kInfinity;
  }
  double worst = 0;
  for (int64_t b = 0; b < sizes.batches; ++b) {
    const DeformInputs image = in.image(b);
    const at::Tensor result = outputs.result.narrow(0, b, 1);
    if (c.is_forward()) {
      worst = worse(
          worst, error_beside(result, c.dtype, expected_output(image, sizes, coordinate_share(c)),
                              kMaxGradient));
      continue;
    }
    const auto [value, locations, weights] = expected_gradients(image, sizes, coordinate_share(c));
    const auto point_error = [&](size_t i, const Expected& expected) {
      return error_beside(outputs.others.at(i).narrow(0, b, 1), c.sum_dtype(), expected,
                          kMaxGradient);
    };
    worst = worse(worst, error_beside(result, c.dtype, value, kMaxGradient));
    worst = worse(worst, worse(point_error(0, locations), point_error(1, weights)));
  }
  return worst;
}

// --- the benchmark ----------------------------------------------------------------------------

std::function<Outputs(int64_t)> by_algorithm(const std::string& name,
                                             const Sets<DeformInputs>& sets) {
  const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, const at::Tensor&, c10::string_view)>(
          kAlgorithm);
  return on(sets, [op, name](const DeformInputs& in) {
    return op.call(in.value, in.shapes, in.starts, in.locations, in.weights, name);
  });
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<DeformInputs> sets = make_deform_inputs(c, setup, c.op == &kMsDeformAttnUniform);
  const bool forward = c.is_forward();
  const auto error = against(sets, [c](const DeformInputs& in, const Outputs& outputs) {
    return error_of(c, in, outputs);
  });
  const double tolerance = tolerance_of(c.dtype, /*of_aten=*/false);
  const double of_aten = tolerance_of(c.dtype, /*of_aten=*/true);
  const std::function<Outputs(int64_t)> by_aten =
      forward ? on(sets, [c](const DeformInputs& in) { return aten_forward(c, in); })
              : aten_backward(c, sets);
  std::vector<Variant> all{
      {"warpfuse", plugin, on(sets, forward ? warpfuse_forward : warpfuse_backward), error,
       tolerance},
      {"aten", aten, by_aten, error, of_aten}};
  if (setup.device.is_cuda()) {
    all.push_back(
        {"classic", aten, on(sets, forward ? classic_forward : classic_backward), error, of_aten});
  }
  for (const std::string& name : setup.algorithms) {
    all.push_back({name, algorithm, by_algorithm(name, sets), error, tolerance});
  }
  return all;
}

std::vector<std::string> operators(const Case& c) {
  return {c.is_forward() ? "warpfuse::ms_deform_attn" : "warpfuse::_ms_deform_attn_backward"};
}

// A forward reads locations and weights, and of the value each pixel once, or what few points
// touch; it writes the output. By grid_sample the samples of all points are written, stacked,
// multiplied and summed: six passes over them, in the points' dtype, and two over the grids. The
// backward reads the output's gradient instead and writes three; half precision has sums in float32
// beside, cleared, added to and cast. By grid_sample a gradient of the samples is written and read,
// and samples are multiplied by the output's gradient and summed.
Bytes bytes(const Case& c) {
  const DeformSizes sizes(c.shape);
  const auto element = c.element_bytes();
  const auto point = c.sum_bytes();
  const int64_t columns = sizes.heads * sizes.channels;
  const int64_t whole = sizes.batches * sizes.pixels() * columns;
  const int64_t samples = sizes.samples() * sizes.channels;
  const int64_t value = std::min(whole, 4 * samples) * element;
  const int64_t points = sizes.samples() * 3 * point;
  const int64_t output = sizes.batches * sizes.queries * columns * element;
  const int64_t inputs = whole * element + points + (c.is_forward() ? 0 : output);
  const int64_t read = value + points + output;  // or the output is written
  if (c.is_forward()) {
    return {.least = read,
            .fused = read,
            .unfused = read + 6 * samples * point + 2 * points,
            .inputs = inputs};
  }
  const int64_t least = read + whole * element + points;
  const int64_t sums = element == point ? 0 : 2 * whole * point;
  return {.least = least,
          .fused = least + sums,
          .unfused = least + sums + 5 * samples * point + 2 * points,
          .inputs = inputs};
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .family = "ms_deform_attn",
          .shapes =
              "5 sizes, batch x queries x heads x channels x points, and levels, such as "
              "1x300x8x32x4/25x34/13x17,",
          .takes = [](const Shape& shape) { return shape.sizes.size() == 5; },
          .levels = true,
          .algorithms = kAlgorithm,
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace ms_deform_attn_suite

constexpr Benchmark kMsDeformAttn = ms_deform_attn_suite::benchmark("ms_deform_attn");
constexpr Benchmark kMsDeformAttnUniform =
    ms_deform_attn_suite::benchmark("ms_deform_attn_uniform");

}  // namespace warpfuse::host::bench
