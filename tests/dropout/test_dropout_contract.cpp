// The operators with dropout beside their values: bad input and autocast. (Meta:
// tests/python/test_operators.py.)

#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

std::string complaint(const std::string& text) { return "Error: warpfuse::" + text; }

at::Tensor attention(const at::Tensor& scores, double p, bool training = true) {
  return warpfuse::scaled_masked_softmax_dropout(scores, 1.0, {}, "none", {}, {}, 0, {}, p,
                                                 training);
}

}  // namespace

// --- bad input ----------------------------------------------------------------------------------

WARPFUSE_DEVICE_TEST("a dropout_p that is no probability", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const at::Tensor rng = rng_of(0, 0, device);
  const std::string expected = ": dropout_p: expected a probability from 0 to 1, got ";
  for (const auto& [p, text] : std::vector<std::pair<double, std::string>>{
           {-0.1, "-0.1"}, {1.5, "1.5"}, {kNaN, "nan"}, {kInf, "inf"}}) {
    const auto check = [&](const std::string& name, const auto& call) {
      CHECK(error_of(call) == complaint(name + expected + text));
    };
    for (const bool training : {false, true}) {
      check("dropout_softmax", [&] { warpfuse::dropout_softmax(x, 1, p, training); });
      check("softmax_dropout", [&] { warpfuse::softmax_dropout(x, 1, p, training); });
      check("linear_dropout_softmax",
            [&] { warpfuse::linear_dropout_softmax(x, x, {}, p, training); });
      check("scaled_masked_softmax_dropout", [&] { attention(x, p, training); });
    }
    check("_dropout_softmax", [&] { dropout_softmax(x, {.dim = 1, .p = p}, rng); });
    check("_dropout_softmax_backward",
          [&] { dropout_softmax_backward(x, x, x, rng, {.dim = 1, .p = p}); });
    check("_dropout_mask", [&] { dropout_mask(x, p, rng); });
    check("_scaled_masked_softmax_dropout", [&] { masked_dropout(x, {}, p, rng); });
  }
}

WARPFUSE_DEVICE_TEST("an rng that is none", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const auto integers = at::TensorOptions(device).dtype(at::kLong);
  for (const auto& [rng, text] : std::vector<std::pair<at::Tensor, std::string>>{
           {at::zeros({3}, integers), "expected shape [2], got [3]"},
           {at::zeros({1, 2}, integers), "expected shape [2], got [1, 2]"},
           {at::zeros({}, integers), "expected shape [2], got []"},
           {at::zeros({2}, integers.dtype(at::kInt)), "expected Long, got Int"},
           {at::zeros({2}, integers.dtype(at::kFloat)), "expected Long, got Float"}}) {
    const at::Tensor& given = rng;
    const auto check = [&, &message = text](const std::string& name, const auto& call) {
      CHECK(error_of(call) == complaint(name + ": rng: " + message));
    };
    check("_dropout_softmax", [&] { dropout_softmax(x, {}, given); });
    check("_dropout_softmax_backward", [&] { dropout_softmax_backward(x, x, x, given, {}); });
    check("_linear_dropout_softmax", [&] { linear_dropout_softmax(x, x, {}, 0.5, given); });
    check("_dropout_mask", [&] { dropout_mask(x, 0.5, given); });
    check("_scaled_masked_softmax_dropout", [&] { masked_dropout(x, {}, 0.5, given); });
  }
}

WARPFUSE_DEVICE_TEST("linear's shapes and dtypes", "[errors][dropout]") {
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
    return at::zeros(shape, at::TensorOptions(device).dtype(dtype));
  };
  const auto error = [&](const at::Tensor& input, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias = std::nullopt) {
    return error_of([&] { warpfuse::linear_dropout_softmax(input, weight, bias); });
  };
  const auto says = [](const std::string& text) {
    return complaint("linear_dropout_softmax: " + text);
  };
  CHECK(error(zeros({2, 3}), zeros({5, 4})) ==
        says("weight: expected [out, in] with in = 3, got [5, 4]"));
  CHECK(error(zeros({2, 3}), zeros({3})) ==
        says("weight: expected [out, in] with in = 3, got [3]"));
  CHECK(error(zeros({}), zeros({5, 4})) == says("input: expected [..., in], got 0 dimensions"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({3})) ==
        says("bias: expected shape [out] = [5], got [3]"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({1, 5})) ==
        says("bias: expected shape [out] = [5], got [1, 5]"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}, at::kDouble)) ==
        says("weight: expected Float, got Double"));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({5}, at::kHalf)) ==
        says("bias: expected Float, got Half"));
  const std::string floating = "expected float64, float32, float16 or bfloat16, got Long";
  CHECK(error(zeros({2, 3}, at::kLong), zeros({5, 3}, at::kLong)) == says("input: " + floating));
  CHECK(error(zeros({2, 3}), zeros({5, 3}), zeros({5}, at::kLong)) == says("bias: " + floating));
}

WARPFUSE_DEVICE_TEST("dtypes, dims and statistics", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const at::Tensor integers = x.to(at::kInt);
  const std::string floating = "expected float64, float32, float16 or bfloat16, got Int";
  CHECK(error_of([&] { warpfuse::dropout_softmax(integers, 1); }) ==
        complaint("dropout_softmax: self: " + floating));
  CHECK(error_of([&] { warpfuse::softmax_dropout(integers, 1, 0.5, false); }) ==
        complaint("softmax_dropout: self: " + floating));
  CHECK(error_of([&] { attention(integers, 0.5); }) ==
        complaint("scaled_masked_softmax_dropout: scores: " + floating));
  const std::string out_of_range =
      "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)";
  CHECK(error_of([&] { warpfuse::dropout_softmax(x, 2); }) == out_of_range);
  CHECK(error_of([&] { warpfuse::softmax_dropout(x, 2); }) == out_of_range);

  const at::Tensor rng = rng_of(0, 0, device);
  const auto backward = [&](const at::Tensor& grad, const at::Tensor& statistics) {
    return error_of([&] {
      dropout_softmax_backward(grad, x, statistics, rng, {.dim = 1, .softmax_first = true});
    });
  };
  const std::string name = "_dropout_softmax_backward: ";
  CHECK(backward(x, x) ==
        complaint(name + "statistics: expected shape [rows, 2] = [2, 2], got [2, 3]"));
  CHECK(backward(x, x.to(at::kDouble)) ==
        complaint(name + "statistics: expected Float, got Double"));
  CHECK(backward(x.t(), x) == complaint(name + "grad_output: expected shape [2, 3], got [3, 2]"));
}

WARPFUSE_GPU_TEST("random state on another device", "[errors][dropout]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const std::string where = "expected a tensor on cuda:0, got cpu";
  CHECK(error_of([&] { dropout_softmax(x, {}, rng_of(0, 0, at::kCPU)); }) ==
        complaint("_dropout_softmax: rng: " + where));
  CHECK(error_of([&] { warpfuse::linear_dropout_softmax(x, at::zeros({5, 3})); }) ==
        complaint("linear_dropout_softmax: weight: " + where));
}

// --- autocast -------------------------------------------------------------------------

WARPFUSE_DEVICE_TEST("autocast of the operators with dropout", "[autocast][dropout]") {
  for (const at::ScalarType cast : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast(device.type(), cast);
    for (const at::ScalarType from : {at::kFloat, cast}) {
      for (const bool training : {false, true}) {
        const at::Tensor x = random_tensor({5, 33}, from, device).set_requires_grad(true);
        const at::Tensor weight = random_tensor({7, 33}, from, device).set_requires_grad(true);
        const at::ScalarType of_softmax = at::softmax(x, 1).scalar_type();
        CHECK(warpfuse::dropout_softmax(x, 1, 0.5, training).scalar_type() == of_softmax);
        CHECK(warpfuse::softmax_dropout(x, 1, 0.5, training).scalar_type() == of_softmax);
        CHECK(attention(x, 0.5, training).scalar_type() == from);
        const at::Tensor output = warpfuse::linear_dropout_softmax(x, weight, {}, 0.5, training);
        const at::ScalarType of_linear = at::linear(x, weight).scalar_type();
        CHECK(of_linear == cast);
        CHECK(output.scalar_type() == of_linear);
        for (const at::Tensor& grad :
             torch::autograd::grad({output}, {x, weight}, {at::ones_like(output)})) {
          CHECK(grad.scalar_type() == from);
        }
      }
    }
  }
}
