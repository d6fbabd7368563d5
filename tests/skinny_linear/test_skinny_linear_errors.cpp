// Bad input of norm_linear, linear_residual and linear_argmax: what is said about it.

#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/linear_call.h"
#include "support/pch.h"

namespace {

/// The whole first line, of each operator that has what `change` makes wrong.
template <typename Change>
void check_linear_error(const at::Device& device, const std::vector<std::string>& operators,
                        const std::string& expected, const Change& change) {
  for (const std::string& name : operators) {
    const bool has_norm = name != "linear_residual";
    LinearCall call = random_linear({2, 3}, 8, 5, at::kFloat, device, has_norm ? "layer" : "");
    change(call);
    INFO(describe(call));
    CHECK(error_of([&] { name == "linear_argmax" ? call.argmax() : call.run(); }) ==
          "Error: warpfuse::" + name + ": " + expected);
  }
}

const std::vector<std::string> kAll = {"norm_linear", "linear_residual", "linear_argmax"};
const std::vector<std::string> kWithNorm = {"norm_linear", "linear_argmax"};

void check_linear_errors(const at::Device& device) {
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  const auto check = [&](const std::vector<std::string>& operators, const std::string& expected,
                         const auto& change) {
    check_linear_error(device, operators, expected, change);
  };
  check(kAll, "input: expected float64, float32, float16 or bfloat16, got Long",
        [&](LinearCall& call) { call.input = at::zeros({2, 3, 8}, options.dtype(at::kLong)); });
  check(kAll, "input: expected float32, float16 or bfloat16, got Double",
        [&](LinearCall& call) { call.input = at::zeros({2, 3, 8}, options.dtype(at::kDouble)); });
  check(kAll, "input: expected [.., in], got 0 dimensions",
        [&](LinearCall& call) { call.input = at::zeros({}, options); });
  check(kAll, "weight: expected Float, got Half",
        [&](LinearCall& call) { call.weight = at::zeros({5, 8}, options.dtype(at::kHalf)); });
  check(kAll, "weight: expected [out, in] with in = 8, got [5, 7]",
        [&](LinearCall& call) { call.weight = at::zeros({5, 7}, options); });
  check(kAll, "weight: expected [out, in] with in = 8, got [8]",
        [&](LinearCall& call) { call.weight = at::zeros({8}, options); });
  check(kAll, "bias: expected shape [5], got [8]",
        [&](LinearCall& call) { call.bias = at::zeros({8}, options); });
  check(kAll, "bias: expected shape [5], got [1, 5]",
        [&](LinearCall& call) { call.bias = at::zeros({1, 5}, options); });
  check(kAll, "bias: expected Float, got BFloat16",
        [&](LinearCall& call) { call.bias = at::zeros({5}, options.dtype(at::kBFloat16)); });
  check(kWithNorm, "norm_weight: expected shape [8], got [5]",
        [&](LinearCall& call) { call.norm_weight = at::zeros({5}, options); });
  check(kWithNorm, "norm_weight: expected Float, got Half",
        [&](LinearCall& call) { call.norm_weight = at::zeros({8}, options.dtype(at::kHalf)); });
  check(kWithNorm, "norm_bias: expected shape [8], got [9]",
        [&](LinearCall& call) { call.norm_bias = at::zeros({9}, options); });
  check(kWithNorm, "norm_bias: expected none for an RMS norm, got a tensor",
        [&](LinearCall& call) { call.norm = "rms"; });
  const LinearCall no_norm = random_linear({2, 3}, 8, 5, at::kFloat, device, "");
  CHECK(error_of([&] {
          warpfuse::norm_linear(no_norm.input, at::Tensor(), std::nullopt, no_norm.weight);
        }) == "Error: warpfuse::norm_linear: norm_weight: expected a tensor, got an undefined one");
  check({"linear_argmax"}, "norm_bias: expected none without a norm_weight, got a tensor",
        [&](LinearCall& call) { call.norm_weight = at::Tensor(); });
  check(kWithNorm, "norm: expected 'layer' or 'rms', got 'batch'",
        [&](LinearCall& call) { call.norm = "batch"; });
  check(kWithNorm, "eps: expected a number not below 0, got -1",
        [&](LinearCall& call) { call.eps = -1; });
  check(kWithNorm, "eps: expected a number not below 0, got nan",
        [&](LinearCall& call) { call.eps = kNaN; });
  check({"norm_linear"}, "activation: expected 'none', 'gelu' or 'gelu_tanh', got 'relu'",
        [&](LinearCall& call) { call.activation = "relu"; });
  check({"linear_residual"}, "residual: expected shape [2, 3, 5], got [3, 5]",
        [&](LinearCall& call) { call.residual = at::zeros({3, 5}, options); });
  check({"linear_residual"}, "residual: expected Float, got Half",
        [&](LinearCall& call) { call.residual = at::zeros({2, 3, 5}, options.dtype(at::kHalf)); });
}

}  // namespace

WARPFUSE_DEVICE_TEST("what linear layers say about bad input", "[skinny_linear][errors]") {
  check_linear_errors(device);
  check_linear_error(device, {"linear_argmax"},
                     "weight: expected at least one output, got shape [0, 8]",
                     [&](LinearCall& call) {
                       call.weight = call.weight.narrow(0, 0, 0);
                       call.bias = call.bias.narrow(0, 0, 0);
                     });
  if (device.is_cuda()) {
    check_linear_error(device, kAll, "weight: expected a tensor on cuda:0, got cpu",
                       [&](LinearCall& call) { call.weight = call.weight.cpu(); });
    check_linear_error(device, kAll, "bias: expected a tensor on cuda:0, got cpu",
                       [&](LinearCall& call) { call.bias = call.bias.cpu(); });
    check_linear_error(device, {"linear_residual"},
                       "residual: expected a tensor on cuda:0, got cpu",
                       [&](LinearCall& call) { call.residual = call.residual.cpu(); });
  }
}

TEST_CASE("Meta linear layers are checked as others are", "[skinny_linear][errors][meta]") {
  check_linear_errors(at::kMeta);
}

TEST_CASE("rows that go to ATen have as many outputs as sampling takes",
          "[skinny_linear][errors]") {
  const at::Tensor weight = at::zeros({(1 << 20) + 1, 1});
  CHECK(warpfuse::linear_argmax(at::zeros({16, 1}), weight).eq(0).all().item<bool>());
  CHECK(error_of([&] { warpfuse::linear_argmax(at::zeros({17, 1}), weight); }) ==
        "Error: warpfuse::linear_argmax: weight: expected at most 1048576 outputs where rows go to "
        "ATen, got 1048577");
}
