// The tests' own tools: each must notice what it is there to notice.

#include "support/compare.h"
#include "support/gradcheck.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/tensor_reference.h"

TEST_CASE("the references agree with ATen in float64", "[support]") {
  const at::Tensor x = random_tensor({3, 17}, at::kDouble);
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t dim : {0, 1}) {
      CHECK(mismatch(op.aten(x, dim, std::nullopt), op.expected(x, dim)) == "");
    }
  }
  const at::Tensor grad = random_tensor({3, 17}, at::kDouble);
  const at::Tensor p = at::softmax(x, 1);
  CHECK(mismatch(at::_softmax_backward_data(grad, p, 1, at::kDouble),
                 expected_softmax_backward(grad, p, 1)) == "");
  const at::Tensor l = at::log_softmax(x, 1);
  CHECK(mismatch(at::_log_softmax_backward_data(grad, l, 1, at::kDouble),
                 expected_log_softmax_backward(grad, l, 1)) == "");

  const at::Tensor scores = random_tensor({2, 3, 4, 5}, at::kDouble);
  MaskArguments arguments;
  arguments.scale = 0.3;
  arguments.attn_mask = random_tensor({3, 1, 5}, at::kDouble);
  arguments.causal = "upper_left";
  CHECK(mismatch(aten_masked_softmax(scores, arguments),
                 expected_scaled_masked_softmax(scores, arguments)) == "");
}

namespace {

/// Whether two expectations are one, but for the roundings of float64.
std::string differing(const Expected& a, const Expected& b) {
  const std::string values = far_apart(a.values, b.values, 1e-14);
  return values.empty() ? far_apart(a.error, b.error, 1e-12) : values;
}

}  // namespace

TEST_CASE("the references by loops and by tensors agree", "[support]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = random_tensor({3, 17, 5}, dtype);
    const at::Tensor grad = random_tensor({3, 17, 5}, dtype);
    for (const int64_t dim : {0, 1, -1}) {
      CHECK(differing(tensor_softmax(x, dim, false), expected_softmax(x, dim)) == "");
      CHECK(differing(tensor_softmax(x, dim, true), expected_log_softmax(x, dim)) == "");
      CHECK(differing(tensor_softmax_backward(grad, x, dim, false),
                      expected_softmax_backward(grad, x, dim)) == "");
      CHECK(differing(tensor_softmax_backward(grad, x, dim, true),
                      expected_log_softmax_backward(grad, x, dim)) == "");
    }
  }
  const auto options = at::TensorOptions();
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{2, 3, 4, 7}, {2, 7, 4}, {5, 5}}) {
    const at::Tensor scores = random_tensor(shape, at::kFloat);
    const at::Tensor grad = random_tensor(shape, at::kFloat);
    const int64_t batch = shape.size() > 2 ? shape[0] : 1;
    const int64_t queries = shape[shape.size() - 2], keys = shape.back();
    const at::Tensor positions = at::randint(-2, keys + 2, {batch, queries}, at::kLong);
    const at::Tensor lengths = at::randint(0, keys + 1, {batch}, at::kInt);
    const std::vector<MaskArguments> arguments = {
        {},
        {.scale = 0.3, .causal = "upper_left"},
        {.causal = "lower_right", .window = 2},
        {.query_positions = positions},
        {.causal = "lower_right", .query_positions = positions, .window = 3},
        {.scale = -1.5, .key_lengths = lengths},
        {.attn_mask = random_bool({queries, keys}, at::kCPU), .causal = "upper_left"},
        {.attn_mask = random_bool({keys}, at::kCPU), .key_lengths = lengths},
        {.attn_mask = at::zeros({queries, 1}, options.dtype(at::kBool))},
        {.scale = 2.0, .attn_mask = random_bool({queries, keys}, at::kCPU), .masked_value = -2.5},
        {.scale = 0.5, .attn_mask = random_additive({queries, keys}, at::kFloat, at::kCPU)},
        {.attn_mask = at::full({1}, -kInf), .causal = "upper_left"},
    };
    for (const MaskArguments& a : arguments) {
      INFO(describe(scores) << ", " << describe(a));
      const Expected expected = expected_scaled_masked_softmax(scores, a);
      CHECK(differing(tensor_masked_softmax(scores, a), expected) == "");
      const at::Tensor output = expected.values.to(at::kFloat);
      CHECK(differing(tensor_masked_softmax_backward(grad, output, a),
                      expected_scaled_masked_softmax_backward(grad, output, a)) == "");
    }
  }
}

TEST_CASE("the visible keys of each rule, by hand", "[support]") {
  const at::Tensor scores = at::zeros({1, 1, 2, 4});
  const auto seen = [&](const MaskArguments& arguments) {
    const at::Tensor visible = visible_keys(scores, arguments).reshape(-1);
    std::string text;
    for (int64_t i = 0; i < visible.numel(); ++i) {
      text += visible[i].item<bool>() ? '1' : '0';
    }
    return text;
  };
  CHECK(seen({}) == "11111111");
  CHECK(seen({.causal = "upper_left"}) == "10001100");
  CHECK(seen({.causal = "lower_right"}) == "11101111");
  CHECK(seen({.query_positions = at::tensor({-1, 2}, at::kLong).view({1, 2})}) == "00001110");
  CHECK(seen({.key_lengths = at::tensor({3}, at::kInt)}) == "11101110");
  CHECK(seen({.window = 1}) == "10000100");
  CHECK(seen({.causal = "lower_right", .window = 2}) == "01100011");
  CHECK(seen({.query_positions = at::tensor({9, 1}, at::kLong).view({1, 2}), .window = 2}) ==
        "00111100");
  CHECK(seen({.attn_mask = at::tensor({1, 0, 1, 1}, at::kLong).to(at::kBool)}) == "10111011");
}

TEST_CASE("comparison sees small errors, wrong classes and wrong zeros", "[support]") {
  for (const at::ScalarType dtype : kDtypes) {
    INFO(c10::toString(dtype));
    const at::Tensor x = random_tensor({4, 9}, at::kDouble).to(dtype);
    const Expected expected = expected_softmax(x, -1);
    const at::Tensor right = expected.values.to(dtype);
    CHECK(mismatch(right, expected) == "");
    const double error = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 1e-4 : 3e-2;
    at::Tensor wrong = right.clone();
    wrong[2][3] = right[2][3].item<double>() * (1.0 + error);
    CHECK(mismatch(wrong, expected) != "");
    for (const double value : {kNaN, kInf, 0.0}) {
      wrong = right.clone();
      wrong[3][8].fill_(value);
      CHECK(mismatch(wrong, expected) != "");
      CHECK(aten_mismatch(wrong, right) != "");
      CHECK(bit_mismatch(wrong, right) != "");
    }
    CHECK(mismatch(right.t(), expected) != "");
    Expected zero = expected;
    zero.values = at::zeros_like(expected.values);
    zero.error = at::zeros_like(expected.values);
    CHECK(mismatch(at::full({4, 9}, 1e-7, dtype), zero) != "");
  }
}

TEST_CASE("poisoned memory shows what is not written", "[support]") {
  const Poison poison;
  for (const at::ScalarType dtype : kDtypes) {
    CHECK(at::isnan(at::empty({1000}, dtype)).all().item<bool>());
  }
  if (!at::hasCUDA()) {  // with a GPU, ATen's mode has the last word on the CPU too
    const Poison other(0x42);
    CHECK(at::empty({1000}, at::kByte).eq(0x42).all().item<bool>());
  }
}

TEST_CASE("guard zones notice a write on either side", "[support]") {
  for (const int64_t place : {-1, 10}) {
    const int64_t before = damaged_guard_zones();
    {
      const Poison poison;
      const at::Tensor memory = at::empty({10}, at::kFloat);
      memory.mutable_data_ptr<float>()[0] = 1.0F;
      CHECK(damaged_guard_zones() == before);
      memory.mutable_data_ptr<float>()[place] = 1.0F;
    }
    CHECK(damaged_guard_zones() == before + 1);
  }
}

TEST_CASE("the gradient checks notice a wrong gradient", "[support]") {
  const at::Tensor x = random_tensor({5}, at::kDouble);
  const Function cube = [](const std::vector<at::Tensor>& in) { return in[0].pow(3); };
  CHECK(gradient_mismatch(cube, {x}) == "");
  CHECK(second_gradient_mismatch(cube, {x}) == "");
  // Its value is x^3, the gradient that autograd sees that of x^2 * constant.
  const Function wrong = [](const std::vector<at::Tensor>& in) {
    return in[0].pow(2) * in[0].detach();
  };
  CHECK(gradient_mismatch(wrong, {x}) != "");
  // Adds nothing to the value and the gradient, but 2 to the second derivative that autograd sees.
  const Function wrong_second = [](const std::vector<at::Tensor>& in) {
    return in[0].pow(3) + (in[0] - in[0].detach()).pow(2);
  };
  CHECK(gradient_mismatch(wrong_second, {x}) == "");
  CHECK(second_gradient_mismatch(wrong_second, {x}) != "");
}
