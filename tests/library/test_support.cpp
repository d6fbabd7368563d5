// The tests' own tools: each must notice what it is there to notice.

#include "support/compare.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"

TEST_CASE("the references agree with ATen in float64", "[support]") {
  const at::Tensor x = random_tensor({3, 17}, at::kDouble);
  const at::Tensor grad = random_tensor({3, 17}, at::kDouble);
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t dim : {0, 1}) {
      const at::Tensor y = op.aten(x, dim, std::nullopt);
      CHECK(mismatch(y, op.expected(x, dim)) == "");
      const at::Tensor dx = op.log ? at::_log_softmax_backward_data(grad, y, dim, at::kDouble)
                                   : at::_softmax_backward_data(grad, y, dim, at::kDouble);
      CHECK(mismatch(dx, expected_softmax_backward(grad, y, dim, op.log)) == "");
    }
  }
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{2, 3, 4, 7}, {2, 7, 4}, {5, 5}}) {
    const at::Tensor scores = random_tensor(shape, at::kDouble).set_requires_grad(true);
    const int64_t batch = shape.size() > 2 ? shape[0] : 1;
    const int64_t queries = shape[shape.size() - 2], keys = shape.back();
    at::Tensor visible = random_bool({queries, keys}, at::kCPU);
    visible.select(1, 0).fill_(true);  // ATen gives NaN where a row has no key
    for (const MaskArguments& a : std::vector<MaskArguments>{
             {},
             {.scale = 0.3,
              .attn_mask = random_tensor({queries, keys}, at::kDouble),
              .causal = "upper_left"},
             {.scale = -1.5, .attn_mask = visible, .causal = "upper_left"},
             {.causal = "upper_left", .window = keys},
             {.scale = 2.0, .attn_mask = random_bool({keys}, at::kCPU), .masked_value = -2.5},
             {.query_positions = at::randint(0, keys + 2, {batch, queries}, at::kLong),
              .key_lengths = at::randint(1, keys + 1, {batch}, at::kInt)}}) {
      INFO(describe(scores) << ", " << describe(a));
      const at::Tensor output = aten_masked_softmax(scores, a);
      CHECK(mismatch(output, expected_masked_softmax(scores, a)) == "");
      const at::Tensor of_output = random_tensor(shape, at::kDouble);
      const at::Tensor of_scores = torch::autograd::grad({output}, {scores}, {of_output})[0];
      CHECK(mismatch(of_scores, expected_masked_softmax_backward(of_output, output, a)) == "");
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
    // A small spread: 3 % of a subnormal probability is less than the rounding that is admitted.
    const at::Tensor x = random_tensor({4, 9}, dtype, at::kCPU, /*spread=*/1.0);
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
    const Poison poison;
    const auto write_at = [](int64_t index) {
      at::empty({10}, at::kFloat).mutable_data_ptr<float>()[index] = 1.0F;
      return take_damaged_guard_zones();
    };
    CHECK(write_at(0) == 0);
    CHECK(write_at(place) == 1);
  }
}

TEST_CASE("a write beside a tensor fails the test case", "[support][!shouldfail]") {
  const Poison poison;
  at::empty({10}, at::kFloat).mutable_data_ptr<float>()[10] = 1.0F;
}

TEST_CASE("no number of failures is the exit code of a skip", "[support]") {
  for (const bool has_skipped : {false, true}) {
    for (int failures = 1; failures < 256; ++failures) {
      CHECK(exit_code(failures, true, has_skipped) == 1);
    }
    CHECK(exit_code(0, true, has_skipped) == (has_skipped ? 77 : 0));
  }
  CHECK(exit_code(0, false, true) == 77);
  CHECK(exit_code(0, false, false) == 2);
}
