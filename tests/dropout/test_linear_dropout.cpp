// linear_dropout_softmax on every device: at::linear, then dropout_softmax; results and gradients
// against a reference in float64 with the same mask.

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

WARPFUSE_DEVICE_TEST("the linear layer's gradients without training", "[dropout][portable]") {
  const auto gradients = [&](const auto& run) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& leaf : {random_tensor({4, 5, 33}, at::kDouble, device, 1.0),
                                   random_tensor({70, 33}, at::kDouble, device, 0.3),
                                   random_tensor({70}, at::kDouble, device)}) {
      leaves.push_back(leaf.set_requires_grad(true));
    }
    const at::Tensor output = run(leaves[0], leaves[1], leaves[2]);
    return torch::autograd::grad({output.pow(2).sum()}, leaves);
  };
  at::manual_seed(3);
  const CounterDelta masks("dropout_mask." + backend_name(device));
  const CounterDelta drawn("dropout_softmax_backward." + backend_name(device));
  const auto got = gradients([](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return warpfuse::linear_dropout_softmax(x, w, b, 0.5, false);
  });
  CHECK(masks() + drawn() == 0);
  at::manual_seed(3);
  const auto expected =
      gradients([](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
        return at::softmax(at::linear(x, w, b), -1);
      });
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    CHECK(got[i].allclose(expected[i], 1e-10, 1e-12));
  }
}

WARPFUSE_DEVICE_TEST("linear, dropout, softmax: values and gradients", "[dropout][portable]") {
  const double p = 0.2;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{33}, {5, 33}, {2, 3, 33}}) {
      for (const bool has_bias : {false, true}) {
        const at::Tensor input = random_tensor(shape, dtype, device, 1.0).set_requires_grad(true);
        const at::Tensor weight =
            random_tensor({70, 33}, dtype, device, 0.3).set_requires_grad(true);
        const at::Tensor bias = random_tensor({70}, dtype, device).set_requires_grad(true);
        const auto given = has_bias ? std::optional(bias) : std::nullopt;
        const at::Tensor rng = rng_of(3, 12, device);
        const auto [output, used] = linear_dropout_softmax(input, weight, given, p, rng);
        CHECK(used.equal(rng));
        std::vector<int64_t> sizes = shape;
        sizes.back() = 70;
        CHECK(output.sizes() == at::IntArrayRef(sizes));

        std::vector<at::Tensor> leaves = {input, weight}, doubles;
        if (has_bias) {
          leaves.push_back(bias);
        }
        for (const at::Tensor& leaf : leaves) {
          doubles.push_back(leaf.detach().to(at::kDouble).set_requires_grad(true));
        }
        const at::Tensor factors = plain_factors(sizes, p, rng).to(device);
        const at::Tensor expected =
            at::softmax(at::linear(doubles[0], doubles[1],
                                   has_bias ? std::optional(doubles[2]) : std::nullopt) *
                            factors,
                        -1);
        const double tolerance = dtype == at::kDouble ? 1e-13 : 2e-6;
        CHECK(far_apart(output.to(at::kDouble), expected, tolerance) == "");
        const at::Tensor grad = random_tensor(sizes, dtype, device);
        const auto got = torch::autograd::grad({output}, leaves, {grad});
        const auto exact = torch::autograd::grad({expected}, doubles, {grad.to(at::kDouble)});
        for (size_t i = 0; i < got.size(); ++i) {
          INFO(i);
          CHECK(got[i].scalar_type() == dtype);
          CHECK(far_apart(got[i].to(at::kDouble), exact[i], 10 * tolerance) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("linear_dropout_softmax is dropout_softmax of at::linear",
                     "[dropout][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor input = random_tensor({4, 33}, dtype, device, 1.0);
    const at::Tensor weight = random_tensor({1000, 33}, dtype, device, 0.3);
    const at::Tensor bias = random_tensor({1000}, dtype, device);
    const at::Tensor rng = rng_of(3, 12, device);
    CHECK(bit_mismatch(std::get<0>(linear_dropout_softmax(input, weight, bias, 0.3, rng)),
                       std::get<0>(dropout_softmax(at::linear(input, weight, bias),
                                                   {.dim = -1, .p = 0.3}, rng))) == "");
  }
}

WARPFUSE_DEVICE_TEST("gradients of linear_dropout_softmax without rows, inputs or outputs",
                     "[dropout]") {
  for (const auto& [sizes, outputs] :
       std::initializer_list<std::pair<std::vector<int64_t>, int64_t>>{
           {{0, 4}, 5}, {{3, 0}, 5}, {{3, 4}, 0}, {{2, 0, 4}, 5}, {{4}, 0}}) {
    INFO(at::IntArrayRef(sizes) << " x " << outputs);
    const auto leaf = [&](at::IntArrayRef shape) {
      return random_tensor(shape, at::kFloat, device).set_requires_grad(true);
    };
    const std::vector<at::Tensor> leaves = {leaf(sizes), leaf({outputs, sizes.back()}),
                                            leaf({outputs})};
    const auto gradients_of = [&](const at::Tensor& output) {
      return torch::autograd::grad({output}, leaves, {at::ones_like(output)});
    };
    const auto got =
        gradients_of(warpfuse::linear_dropout_softmax(leaves[0], leaves[1], leaves[2], 0.5, false));
    const auto expected =
        gradients_of(at::softmax(at::linear(leaves[0], leaves[1], leaves[2]), -1));
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(far_apart(got[i], expected[i], 1e-6) == "");
    }
  }
}
