// Gradients of ms_deform_attn.

#include <torch/csrc/autograd/autograd.h>

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

double relative_distance(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor wide = actual.cpu().to(at::kDouble);
  return ((wide - expected).norm() / expected.norm()).item<double>();
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
  const auto expected = gradients(
      deform_reference(wide[0], in.shapes, wide[1], softmax ? deform_softmax(wide[2]) : wide[2]),
      grad.cpu().to(at::kDouble), wide);
  const double tolerance = dtype == at::kDouble  ? 1e-11
                           : dtype == at::kFloat ? 1e-5
                           : dtype == at::kHalf  ? 4e-3
                                                 : 3e-2;
  const auto check = [&] {
    const auto actual = gradients(output, grad, inputs);
    for (size_t i = 0; i < 3; ++i) {
      INFO("gradient " << i);
      CHECK(actual[i].scalar_type() == inputs[i].scalar_type());
      CHECK(relative_distance(actual[i], expected[i]) <= tolerance);
    }
  };
  check();
  const Poison poison;  // on the GPU by ATen's deterministic mode: the fixed-point sums
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
  CHECK_THAT(error_of([&] { grad.sum().backward(); }),
             Catch::Matchers::Contains("one differentiation"));
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
    at::globalContext().setDeterministicAlgorithms(true, false);
    const at::Tensor first = gradient();
    int64_t differing = 0;
    for (int run = 0; run < 100; ++run) {
      differing += at::equal(gradient(), first) ? 0 : 1;
    }
    at::globalContext().setDeterministicAlgorithms(false, false);
    CHECK(differing == 0);
    CHECK(relative_distance(floating, first.cpu().to(at::kDouble)) <=
          (c10::elementSize(dtype) == 2 ? 3e-2 : 1e-5));
  }
}
