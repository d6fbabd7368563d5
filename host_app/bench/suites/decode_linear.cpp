// norm_linear (also with GELU: norm_linear_gelu), linear_residual and linear_argmax, on shapes rows
// x in x out, with biases and layer norms as GPT-2 has them. ATen's is the chain that each stands
// for.

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <warpfuse/linear_argmax.h>
#include <warpfuse/linear_residual.h>
#include <warpfuse/norm_linear.h>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace decode_linear_suite {
namespace {

constexpr double kEpsilon = 1e-5;

struct Set {
  at::Tensor input, weight, bias;     // [rows, in], [out, in] and [out]
  at::Tensor norm_weight, norm_bias;  // [in]
  at::Tensor residual;                // [rows, out]
};

bool is_residual(const Case& c) { return c.op == &kLinearResidual; }
bool is_argmax(const Case& c) { return c.op == &kLinearArgmax; }
bool is_gelu(const Case& c) { return c.op == &kNormLinearGelu; }

Sets<Set> make_inputs(const Case& c, const Setup& setup) {
  const LinearSizes sizes(c.shape);
  const at::TensorOptions options = options_of(c, setup);
  Sets<Set> sets = make_sets<Set>(setup);
  add_linear(*sets, sizes, options, setup);
  if (is_residual(c)) {
    add_tensors(*sets, &Set::residual, {sizes.rows, sizes.out}, options);
  } else {
    add_tensors(*sets, &Set::norm_weight, {sizes.in}, options,
                [](const at::Tensor& weight) { weight.normal_(1, 0.1); });
    add_tensors(*sets, &Set::norm_bias, {sizes.in}, options);
  }
  return sets;
}

// --- calls ------------------------------------------------------------------------------------

Outputs warpfuse_norm(const Set& in) {
  return norm_linear(in.input, in.norm_weight, in.norm_bias, in.weight, in.bias);
}

Outputs warpfuse_gelu(const Set& in) {
  return norm_linear(in.input, in.norm_weight, in.norm_bias, in.weight, in.bias, "layer", kEpsilon,
                     "gelu_tanh");
}

Outputs warpfuse_residual(const Set& in) {
  return linear_residual(in.input, in.weight, in.bias, in.residual);
}

Outputs warpfuse_argmax(const Set& in) {
  return linear_argmax(in.input, in.weight, in.bias, in.norm_weight, in.norm_bias);
}

at::Tensor normalised(const Set& in) {
  return at::layer_norm(in.input, {in.input.size(-1)}, in.norm_weight, in.norm_bias, kEpsilon);
}

at::Tensor aten_logits(const Set& in) { return at::linear(normalised(in), in.weight, in.bias); }

Outputs aten_norm(const Set& in) { return aten_logits(in); }
Outputs aten_gelu(const Set& in) { return at::gelu(aten_logits(in), "tanh"); }
Outputs aten_residual(const Set& in) {
  return at::linear(in.input, in.weight, in.bias).add_(in.residual);
}
Outputs aten_argmax(const Set& in) { return at::argmax(aten_logits(in), -1); }

// --- checks -----------------------------------------------------------------------------------

// What is activated or added to, in double precision, with the size of the terms that it is a sum
// of.
Expected expected_sums(const Case& c, const Set& in) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  at::Tensor x = wide(in.input);
  if (!is_residual(c)) {
    x = at::layer_norm(x, {x.size(-1)}, wide(in.norm_weight), wide(in.norm_bias), kEpsilon);
  }
  const at::Tensor weight = wide(in.weight), bias = wide(in.bias);
  return {at::linear(x, weight, bias), at::linear(x.abs(), weight.abs(), bias.abs())};
}

double error_of(const Case& c, const Set& in, const Outputs& outputs) {
  auto [value, size] = expected_sums(c, in);
  if (is_gelu(c)) {
    value = at::gelu(value, "tanh");
  } else if (is_residual(c)) {
    const at::Tensor residual = in.residual.to(at::kDouble);
    value = value + residual;
    size = size + residual.abs();
  }
  return error_beside(outputs.result, c.dtype, {value, size});
}

// How far the chosen output is below the largest one.
double token_error(const Case& c, const Set& in, const Outputs& outputs, bool of_aten) {
  const auto [value, size] = expected_sums(c, in);
  if (!are_tokens(outputs.result, value.sizes().slice(0, 1), value.size(1))) {
    return kInfinity;
  }
  const at::Tensor index = outputs.result.clamp_min(0).unsqueeze(1);
  const at::Tensor below =
      (value.amax(1) - value.gather(1, index).squeeze(1)) / size.gather(1, index).squeeze(1);
  return token_errors(below, outputs.result, at::isnan(value).any(1), of_aten).max().item<double>();
}

// --- the benchmarks ---------------------------------------------------------------------------

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  using Call = Outputs (*)(const Set&);
  const Sets<Set> sets = make_inputs(c, setup);
  const Call call = is_argmax(c)     ? warpfuse_argmax
                    : is_residual(c) ? warpfuse_residual
                    : is_gelu(c)     ? warpfuse_gelu
                                     : warpfuse_norm;
  const Call chain = is_argmax(c)     ? aten_argmax
                     : is_residual(c) ? aten_residual
                     : is_gelu(c)     ? aten_gelu
                                      : aten_norm;
  const auto error = [&](bool of_aten) {
    return against(sets, [c, of_aten](const Set& in, const Outputs& outputs) {
      return is_argmax(c) ? token_error(c, in, outputs, of_aten) : error_of(c, in, outputs);
    });
  };
  return {{"warpfuse", plugin, on(sets, call), error(false), tolerance_of(c.dtype, false)},
          {"aten", aten, on(sets, chain), error(true), tolerance_of(c.dtype, true)}};
}

std::vector<std::string> operators(const Case& c) {
  return {fmt::format("warpfuse::{}", is_gelu(c) ? "norm_linear" : c.op->name)};
}

// Each tensor once. ATen's norm, activation, sum and argmax write and read a tensor more each.
Bytes bytes(const Case& c) {
  const LinearSizes sizes(c.shape);
  const auto element = c.element_bytes();
  const int64_t rows = sizes.rows * sizes.in * element, results = sizes.rows * sizes.out * element;
  const int64_t norm = is_residual(c) ? 0 : 2 * sizes.in * element;
  const int64_t inputs =
      rows + (sizes.in + 1) * sizes.out * element + norm + (is_residual(c) ? results : 0);
  const int64_t output =
      is_argmax(c) ? sizes.rows * static_cast<int64_t>(sizeof(int64_t)) : results;
  const bool second_pass = is_argmax(c) || is_residual(c) || is_gelu(c);
  return {.least = inputs + output,
          .fused = inputs + output,
          .unfused =
              inputs + output + (is_residual(c) ? 0 : 2 * rows) + (second_pass ? 2 * results : 0),
          .inputs = inputs};
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .shapes = kLinearShapes,
          .takes = is_linear,
          .directions = kForward,
          .float64 = false,
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace decode_linear_suite

constexpr Benchmark kNormLinear = decode_linear_suite::benchmark("norm_linear");
constexpr Benchmark kNormLinearGelu = decode_linear_suite::benchmark("norm_linear_gelu");
constexpr Benchmark kLinearResidual = decode_linear_suite::benchmark("linear_residual");
constexpr Benchmark kLinearArgmax = decode_linear_suite::benchmark("linear_argmax");

}  // namespace warpfuse::host::bench
