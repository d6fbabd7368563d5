// scaled_masked_softmax: the backward operator against its formula, and autograd against ATen's
// chain, for the scores and for an additive mask. (Central differences:
// tests/python/test_operators.py.)

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

std::vector<MaskArguments> rule_sets(at::IntArrayRef shape, const at::Device& device) {
  const int64_t batch = shape[0];
  const int64_t queries = shape[2];
  const int64_t keys = shape[3];
  const auto options = at::TensorOptions(device);
  return {
      {.scale = 0.7},
      {.scale = 0.7, .causal = "upper_left"},
      {.scale = -0.3, .causal = "lower_right", .window = 2},
      {.attn_mask = random_bool({batch, 1, queries, keys}, device)},
      {.scale = 2.0, .attn_mask = random_bool({queries, keys}, device), .masked_value = -0.5},
      {.attn_mask = at::zeros({keys}, options.dtype(at::kBool)), .masked_value = -10000.0},
      {.query_positions = at::randint(-1, keys, {batch, queries}, at::kLong).to(device)},
      {.scale = 0.5, .key_lengths = at::randint(0, keys + 1, {batch}, at::kInt).to(device)},
  };
}

}  // namespace

WARPFUSE_DEVICE_TEST("the backward operator follows its formula", "[masked][gradient]") {
  std::vector<std::vector<int64_t>> shapes = {{1, 1, 2, 1023}, {1, 2, 1, 4097}, {1, 1, 1, 50257}};
  for (int64_t keys = 1; keys <= 130; keys += keys < 40 ? 1 : 13) {
    shapes.push_back({2, 2, 3, keys});
  }
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& shape : shapes) {
      for (const MaskArguments& arguments : rule_sets(shape, device)) {
        INFO(c10::toString(dtype) << " " << at::IntArrayRef(shape) << describe(arguments));
        const at::Tensor grad = random_tensor(shape, dtype, device);
        const at::Tensor output = masked_softmax(random_tensor(shape, dtype, device), arguments);
        const Poison poison;
        const at::Tensor got = masked_softmax_backward(grad, output, arguments);
        CHECK(got.scalar_type() == dtype);
        CHECK(got.is_contiguous());
        CHECK(mismatch(got, expected_masked_softmax_backward(grad, output, arguments)) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("the backward operator with any strides", "[masked][gradient]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const MaskArguments& arguments : rule_sets({2, 3, 4, 33}, device)) {
      const at::Tensor output =
          masked_softmax(random_tensor({2, 3, 4, 33}, dtype, device), arguments);
      for (const at::Tensor& grad :
           {random_tensor({2, 4, 3, 33}, dtype, device).transpose(1, 2),
            random_tensor({2, 3, 4, 70}, dtype, device).slice(3, 1, 67, 2),
            random_tensor({1, 1, 1, 1}, dtype, device).expand({2, 3, 4, 33})}) {
        const at::Tensor y = output.transpose(0, 3).contiguous().transpose(0, 3);
        CHECK(mismatch(masked_softmax_backward(grad, y, arguments),
                       expected_masked_softmax_backward(grad, y, arguments)) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("gradients of the scores and their gradients equal those of ATen's chain",
                     "[masked][gradient]") {
  const at::Tensor values = random_tensor({2, 3, 4, 33}, at::kDouble, device);
  const at::Tensor grad = random_tensor({2, 3, 4, 33}, at::kDouble, device);
  for (const MaskArguments& arguments : rule_sets({2, 3, 4, 33}, device)) {
    const auto gradient = [&](const auto& function) {
      const at::Tensor x = values.clone().set_requires_grad(true);
      const at::Tensor first =
          torch::autograd::grad({function(x, arguments)}, {x}, {grad}, /*retain_graph=*/true,
                                /*create_graph=*/true)[0];
      return at::stack({first, torch::autograd::grad({first.square().sum()}, {x})[0]}).detach();
    };
    INFO(describe(arguments));
    // A row without a visible key has no gradient; ATen's is NaN there.
    const at::Tensor chain = gradient(aten_masked_softmax);
    const at::Tensor shut = visible_keys(values, arguments).any(-1, true).logical_not().to(device);
    CHECK(far_apart(gradient(masked_softmax), chain.masked_fill(shut, 0), 1e-13) == "");
  }
}

WARPFUSE_DEVICE_TEST("the gradient of an additive mask of every broadcast shape",
                     "[masked][gradient]") {
  const std::vector<int64_t> full = {2, 3, 4, 5};
  const at::Tensor values = random_tensor(full, at::kDouble, device);
  const at::Tensor grad = random_tensor(full, at::kDouble, device);
  for (const auto& shape : broadcast_shapes(full)) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      const at::Tensor mask_values = random_tensor(shape, type, device);
      const auto gradients = [&](const auto& function) {
        const at::Tensor scores = values.clone().set_requires_grad(true);
        const at::Tensor mask = mask_values.clone().set_requires_grad(true);
        return torch::autograd::grad(
            {function(scores, {.scale = 0.3, .attn_mask = mask, .causal = "lower_right"})},
            {scores, mask}, {grad});
      };
      const auto got = gradients(masked_softmax);
      const auto aten = gradients(aten_masked_softmax);
      INFO("mask " << describe(mask_values));
      CHECK(far_apart(got[0], aten[0], 1e-13) == "");
      CHECK(got[1].scalar_type() == type);
      CHECK(got[1].sizes() == at::IntArrayRef(shape));
      const at::Tensor mask = mask_values.clone().set_requires_grad(true);
      const at::Tensor output =
          masked_softmax(values, {.scale = 0.3, .attn_mask = mask, .causal = "lower_right"});
      const at::Tensor alone = torch::autograd::grad({output}, {mask}, {grad})[0];
      for (const at::Tensor& of_mask : {got[1], alone}) {
        CHECK(far_apart(of_mask, aten[1], type == at::kDouble ? 1e-13 : 1e-7) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a float32 mask of half scores has a float32 gradient", "[masked][gradient]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor scores = random_tensor({2, 3, 64, 33}, dtype, device).set_requires_grad(true);
    const at::Tensor mask = random_tensor({1, 33}, at::kFloat, device).set_requires_grad(true);
    const at::Tensor grad = random_tensor({2, 3, 64, 33}, dtype, device);
    const at::Tensor output = masked_softmax(scores, {.scale = 0.5, .attn_mask = mask});
    const auto got = torch::autograd::grad({output}, {scores, mask}, {grad});
    CHECK(got[0].scalar_type() == dtype);
    CHECK(got[1].scalar_type() == at::kFloat);
    // 384 terms are summed in float32 from the rounded output, not in the scores' dtype.
    const at::Tensor exact = expected_masked_softmax_backward(grad, output, {.attn_mask = mask})
                                 .values.sum({0, 1, 2})
                                 .view({1, 33});
    CHECK(far_apart(got[1], exact, 1e-5) == "");
  }
}

WARPFUSE_DEVICE_TEST("a mask of -inf has zero gradients, and a row of them too",
                     "[masked][gradient]") {
  const at::Tensor scores = random_tensor({3, 4}, at::kDouble, device).set_requires_grad(true);
  at::Tensor mask = at::zeros({3, 4}, at::TensorOptions(device).dtype(at::kDouble));
  mask[0][1].fill_(-kInf);
  mask[2].fill_(-kInf);
  mask.set_requires_grad(true);
  const at::Tensor grad = random_tensor({3, 4}, at::kDouble, device);
  for (const at::Tensor& got : torch::autograd::grad({masked_softmax(scores, {.attn_mask = mask})},
                                                     {scores, mask}, {grad})) {
    CHECK(at::isfinite(got).all().item<bool>());
    CHECK(got[0][1].item<double>() == 0.0);
    CHECK(got[2].eq(0).all().item<bool>());
    CHECK(got[1].ne(0).all().item<bool>());
  }
}
