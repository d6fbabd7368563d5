// Gradients of ms_deform_attn.

#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "support/compare.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

std::vector<at::Tensor> gradients(const at::Tensor& output, const at::Tensor& grad,
                                  const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({output}, inputs, {grad}, /*retain_graph=*/true);
}

constexpr double kEpsilons = 170;

/// Each element within so many epsilons of its own size and of that of all: sums cancel.
Expected within(double epsilons, const at::Tensor& values) {
  const at::Tensor size = values.abs() + values.square().mean().sqrt();
  return {values, size * epsilons};
}

/// A softmax's gradient has one error more: it subtracts a mean over the output, which is rounded.
at::Tensor rounded_mean(const at::Tensor& probabilities, const at::Tensor& output,
                        const at::Tensor& grad, at::ScalarType dtype) {
  const int digits = dtype == at::kHalf ? 11 : dtype == at::kBFloat16 ? 8 : 24;
  const at::IntArrayRef sizes = probabilities.sizes();
  const at::Tensor mean = (output * grad).abs().view({sizes[0], sizes[1], sizes[2], -1}).sum(-1);
  return probabilities * mean.unsqueeze(-1).unsqueeze(-1) * std::ldexp(1.0, 24 - digits);
}

void check_gradients(const DeformShape& shape, at::ScalarType dtype, at::ScalarType point_dtype,
                     const at::Device& device, bool softmax) {
  INFO(dtype << " " << point_dtype << " " << shape.text() << (softmax ? " softmax" : ""));
  DeformInputs in(shape, dtype, device, point_dtype, point_dtype);
  const std::vector<at::Tensor> inputs{in.value.requires_grad_(), in.locations.requires_grad_(),
                                       in.weights.requires_grad_()};
  const at::Tensor output = softmax ? in.attend_softmax() : in.attend();
  const at::Tensor grad = at::randn(output.sizes(), at::kDouble).to(device, dtype);
  std::vector<at::Tensor> wide;
  for (const at::Tensor& input : inputs) {
    wide.push_back(input.detach().cpu().to(at::kDouble).requires_grad_());
  }
  const at::Tensor weights = softmax ? deform_softmax(wide[2]) : wide[2];
  const at::Tensor reference = deform_reference(wide[0], in.shapes, wide[1], weights);
  const at::Tensor wide_grad = grad.cpu().to(at::kDouble);
  std::vector<Expected> expected;
  for (const at::Tensor& values : gradients(reference, wide_grad, wide)) {
    expected.push_back(within(kEpsilons, values));
  }
  if (softmax) {
    expected[2].error += rounded_mean(weights, reference, wide_grad, dtype).detach();
  }
  const auto check = [&] {
    const auto actual = gradients(output, grad, inputs);
    for (size_t i = 0; i < 3; ++i) {
      INFO("gradient " << i);
      CHECK(actual[i].scalar_type() == inputs[i].scalar_type());
      CHECK(mismatch(actual[i], expected[i]) == "");
    }
  };
  check();
  const Poison poison;  // on the GPU by ATen's deterministic mode: the fixed-point sums
  // Their unit is 2^-60 of a bound or less, and each term is rounded to it. Errors are in the units
  // of compare.h.
  const auto terms = static_cast<double>(shape.queries * shape.points);
  const at::Tensor bound =
      wide_grad.abs().max() * terms * (softmax ? 1.0 : wide[2].detach().abs().max().item<double>());
  expected[0].error += bound * terms * std::ldexp(1.0, dtype == at::kDouble ? 50 - 61 : 24 - 61);
  check();
}

}  // namespace

WARPFUSE_DEVICE_TEST("deformable attention's gradients: dtypes and channels",
                     "[ms_deform_attn][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t channels : {1, 3, 30, 32, 64, 260}) {
      for (const bool softmax : {false, true}) {
        const DeformShape shape{.queries = 19, .channels = channels};
        check_gradients(shape, dtype, dtype == at::kDouble ? dtype : at::kFloat, device, softmax);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention's gradients: levels, points and many rows",
                     "[ms_deform_attn][portable]") {
  for (const int64_t points : {1, 3, 5}) {
    for (const int64_t queries : {1, 700}) {
      const DeformShape shape{
          .queries = queries, .channels = 32, .points = points, .levels = {{9, 7}, {1, 1}, {4, 2}}};
      check_gradients(shape, at::kDouble, at::kDouble, device, false);
      check_gradients(shape, at::kDouble, at::kDouble, device, true);
      check_gradients(shape, at::kHalf, at::kHalf, device, true);
    }
  }
}

WARPFUSE_DEVICE_TEST("deformable attention has no second derivative", "[ms_deform_attn]") {
  DeformInputs in(DeformShape{}, at::kDouble, device);
  in.value.requires_grad_();
  in.weights.requires_grad_();
  const at::Tensor grad =
      torch::autograd::grad({in.attend().sum()}, {in.value}, {}, true, /*create_graph=*/true)[0];
  CHECK(error_of([&] { grad.sum().backward(); }).find("one differentiation") != std::string::npos);
}

WARPFUSE_GPU_TEST("deterministic gradients of the value are equal in every run",
                  "[ms_deform_attn][portable]") {
  const DeformShape shape{.queries = 500, .channels = 32, .levels = {{3, 3}, {1, 1}}};
  for (const at::ScalarType dtype : kDtypes) {
    DeformInputs in(shape, dtype, device);
    in.value.requires_grad_();
    const auto gradient = [&] {
      return torch::autograd::grad({in.attend()}, {in.value}, {at::ones_like(in.attend())})[0];
    };
    const at::Tensor floating = gradient();
    const DeterministicAlgorithms mode(true);
    const at::Tensor first = gradient();
    int64_t differing = 0;
    for (int run = 0; run < 100; ++run) {
      differing += at::equal(gradient(), first) ? 0 : 1;
    }
    CHECK(differing == 0);
    CHECK(mismatch(floating, within(kEpsilons, first.to(at::kDouble))) == "");
  }
}
