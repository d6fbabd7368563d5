#pragma once

// norm_linear, linear_residual and linear_argmax as tests call them, and what they should give, in
// float64.

#include <ATen/ATen.h>
#include <warpfuse/linear_argmax.h>
#include <warpfuse/linear_residual.h>
#include <warpfuse/norm_linear.h>

#include <string>

#include "inputs.h"
#include "reference.h"

struct LinearCall {
  at::Tensor input;   // [.., in]
  at::Tensor weight;  // [out, in]
  at::Tensor bias = {};
  at::Tensor norm_weight = {};
  at::Tensor norm_bias = {};
  at::Tensor residual = {};
  std::string norm = "layer";
  double eps = 1e-5;
  std::string activation = "none";

  /// norm_linear where there is a norm's weight, else linear_residual.
  at::Tensor run() const {
    return norm_weight.defined()
               ? warpfuse::norm_linear(input, norm_weight, optional(norm_bias), weight,
                                       optional(bias), norm, eps, activation)
               : warpfuse::linear_residual(input, weight, optional(bias), residual);
  }
  at::Tensor argmax() const {
    return warpfuse::linear_argmax(input, weight, optional(bias), optional(norm_weight),
                                   optional(norm_bias), norm, eps);
  }

  static std::optional<at::Tensor> optional(const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  }
};

inline std::string describe(const LinearCall& call) {
  return c10::str(describe(call.input), ", weight ", describe(call.weight), ", strides ",
                  call.weight.strides(), call.bias.defined() ? ", bias" : "",
                  call.norm_weight.defined() ? ", norm " + call.norm : "",
                  call.norm_bias.defined() ? " with bias" : "", ", ", call.activation);
}

/// Random arguments of norm_linear, or where `norm` is empty of linear_residual. Outputs are of the
/// order of 1.
inline LinearCall random_linear(at::IntArrayRef leading, int64_t in, int64_t out,
                                at::ScalarType dtype, const at::Device& device,
                                const std::string& norm = "") {
  std::vector<int64_t> input(leading.vec()), residual(leading.vec());
  input.push_back(in);
  residual.push_back(out);
  const double spread = 1 / std::sqrt(static_cast<double>(in));
  LinearCall call{.input = random_tensor(input, dtype, device, 1.0),
                  .weight = random_tensor({out, in}, dtype, device, spread),
                  .bias = random_tensor({out}, dtype, device, 1.0)};
  if (norm.empty()) {
    call.residual = random_tensor(residual, dtype, device, 1.0);
    return call;
  }
  call.norm = norm;
  call.norm_weight = random_tensor({in}, dtype, device, 1.0);
  if (norm == "layer") {
    call.norm_bias = random_tensor({in}, dtype, device, 1.0);
  }
  return call;
}

/// Small integers: outputs are exact in any order, and many are equal.
inline LinearCall integer_linear(int64_t rows, int64_t in, int64_t out, at::ScalarType dtype,
                                 const at::Device& device, double unit = 1) {
  const auto integers = [&](at::IntArrayRef sizes, double of_unit) {
    return at::randint(-2, 3, sizes, at::kDouble).mul_(of_unit).to(dtype).to(device);
  };
  return {.input = integers({rows, in}, 1),
          .weight = integers({out, in}, unit),
          .bias = integers({out}, unit)};
}

/// The lowest index among the largest outputs, rounded to the dtype.
inline at::Tensor first_of_largest(const LinearCall& call) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
  const at::Tensor outputs = (at::matmul(wide(call.input), wide(call.weight).t()) + wide(call.bias))
                                 .to(call.input.scalar_type())
                                 .to(at::kDouble);
  const at::Tensor is_largest = outputs.eq(outputs.amax(-1, true));
  const at::Tensor index = at::arange(outputs.size(-1), at::kLong);
  return at::where(is_largest, index, outputs.size(-1)).amin(-1);
}

/// Whether the kernels for few rows may take the call; others round to the dtype between steps.
inline bool is_few_rows(const LinearCall& call) {
  const int64_t in = call.input.size(-1);
  const bool few = call.input.numel() <= 16 * in && call.weight.stride(1) == 1;
  if (!call.input.is_cuda()) {
    return few;
  }
  const int64_t pack = 16 / call.input.element_size();
  const auto is_aligned = [](const at::Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  };
  // Rows of the wide kernel may be too long for it, or many.
  return few && in % pack == 0 && call.weight.stride(0) % pack == 0 && is_aligned(call.weight) &&
         (is_aligned(call.input) || !call.input.is_contiguous()) && in <= 2048 &&
         call.weight.size(0) < 8192;
}

/// In units of float32's epsilon: sums in any order, a norm with an error relative to its
/// deviation, and what rounding between the steps does in half precision.
inline Expected expected_linear(const LinearCall& call) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
  at::Tensor x = wide(call.input), scale = at::ones({}, at::kDouble), offset = at::zeros_like(x);
  at::Tensor of_mean = at::zeros({}, at::kDouble);
  if (call.norm_weight.defined()) {
    const at::Tensor mean = call.norm == "layer" ? x.mean({-1}, true) : at::zeros({}, at::kDouble);
    const at::Tensor inverse = (x - mean).square().mean({-1}, true).add(call.eps).rsqrt();
    of_mean = mean.abs() * inverse;
    x = (x - mean) * inverse;
    scale = wide(call.norm_weight);
    offset = call.norm_bias.defined() ? wide(call.norm_bias).expand_as(x) : offset;
  }
  const at::Tensor weight = wide(call.weight);
  const at::Tensor terms = x * scale + offset;
  at::Tensor values = at::matmul(terms, weight.t());
  if (call.bias.defined()) {
    values = values + wide(call.bias);
  }
  at::Tensor error =
      at::matmul((x.abs() + (call.norm_weight.defined() ? 3 : 0)) * scale.abs() + offset.abs(),
                 weight.abs().t()) *
          16 +
      values.abs() * 16 + 16;
  const at::ScalarType dtype = call.input.scalar_type();
  if (dtype != at::kFloat) {
    const double rounding = std::ldexp(1.0, 24 - (dtype == at::kHalf ? 11 : 8));
    // 6 deviations of independent roundings of each term.
    const at::Tensor of_terms =
        at::matmul((x * scale).square() + offset.square(), weight.square().t()).sqrt() * 6 *
        rounding;
    if (call.norm_weight.defined()) {
      error = error + at::matmul(of_mean * at::ones_like(x) * scale.abs(), weight.abs().t()) * 16;
    }
    if (!is_few_rows(call)) {
      error = error + of_terms + values.abs() * 3 * rounding;
    } else if (call.input.is_cuda() && call.norm_weight.defined()) {
      error = error + of_terms;
    }
  }
  error = error * 1.2;  // the steepest slope of GELU is 1.13
  if (call.activation != "none") {
    values = at::gelu(values, call.activation == "gelu" ? "none" : "tanh");
  }
  if (call.residual.defined()) {
    values = values + wide(call.residual);
    error = error + wide(call.residual).abs();
  }
  return {values.to(call.input.device()), error.to(call.input.device())};
}
