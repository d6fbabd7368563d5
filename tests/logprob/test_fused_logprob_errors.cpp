// Bad input of fused_logprob: what is said about it. (Wrong targets: test_fused_logprob_edges.cpp.)

#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/pch.h"

namespace {

std::string operator_of(const std::string& form) {
  return form == "logprob" ? "fused_logprob" : "fused_logprob_" + form;
}

/// The whole first line, of the public operator and of the one that keeps statistics, with and
/// without a gradient; then a good call.
void check_error(const at::Tensor& logits, const at::Tensor& targets,
                 const LogprobArguments& arguments, const std::string& expected) {
  const std::string text = "Error: warpfuse::" + operator_of(arguments.form) + ": " + expected;
  CHECK(error_of([&] { logprob(logits, targets, arguments); }) == text);
  CHECK(error_of([&] { logprob_with_statistics(logits, targets, arguments); }) == text);
  if (logits.is_floating_point()) {
    const at::Tensor variable = logits.detach().clone().set_requires_grad(true);
    CHECK(error_of([&] { logprob(variable, targets, arguments); }) == text);
  }
  const at::Tensor good =
      logprob(at::zeros({1, 4}), at::zeros({1}, at::kLong), {.form = arguments.form})[0];
  CHECK(std::abs(good.item<double>() + std::log(4.0)) < 1e-6);
}

}  // namespace

WARPFUSE_DEVICE_TEST("logits that are none", "[logprob][errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor targets = at::zeros({2}, options.dtype(at::kLong));
  for (const std::string& form : kLogprobForms) {
    for (const auto& [dtype, name] : std::vector<std::pair<at::ScalarType, std::string>>{
             {at::kLong, "Long"}, {at::kBool, "Bool"}, {at::kComplexFloat, "ComplexFloat"}}) {
      check_error(at::zeros({2, 3}, options.dtype(dtype)), targets, {.form = form},
                  "logits: expected float64, float32, float16 or bfloat16, got " + name);
    }
    check_error(at::zeros({}, options), targets, {.form = form},
                "logits: expected [.., V], got 0 dimensions");
    check_error(at::zeros({2, 0}, options), targets, {.form = form},
                "logits: expected at least one column, got shape [2, 0]");
  }
}

WARPFUSE_DEVICE_TEST("targets that do not fit", "[logprob][errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor x = at::zeros({2, 3, 5}, options);
  for (const std::string& form : kLogprobForms) {
    for (const auto& [shape, text] :
         std::vector<std::pair<std::vector<int64_t>, std::string>>{{{}, "[]"},
                                                                   {{6}, "[6]"},
                                                                   {{3, 2}, "[3, 2]"},
                                                                   {{2, 3, 1}, "[2, 3, 1]"},
                                                                   {{2, 1}, "[2, 1]"},
                                                                   {{2, 3, 5}, "[2, 3, 5]"}}) {
      check_error(x, at::zeros(shape, options.dtype(at::kLong)), {.form = form},
                  "targets: expected shape [2, 3] of logits [2, 3, 5], got " + text);
    }
    for (const auto& [dtype, name] : std::vector<std::pair<at::ScalarType, std::string>>{
             {at::kFloat, "Float"}, {at::kShort, "Short"}, {at::kBool, "Bool"}}) {
      check_error(x, at::zeros({2, 3}, options.dtype(dtype)), {.form = form},
                  "targets: expected int32 or int64, got " + name);
    }
  }
}

WARPFUSE_DEVICE_TEST("temperature and vocab_start", "[logprob][errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor x = at::zeros({2, 3}, options);
  const at::Tensor targets = at::zeros({2}, options.dtype(at::kLong));
  for (const std::string& form : kLogprobForms) {
    for (const auto& [temperature, text] : std::vector<std::pair<double, std::string>>{
             {0.0, "0"}, {-0.0, "-0"}, {-1.5, "-1.5"}, {kNaN, "nan"}, {kInf, "inf"}}) {
      check_error(x, targets, {.temperature = temperature, .form = form},
                  "temperature: expected a positive, finite number, got " + text);
    }
  }
  check_error(x, targets, {.vocab_start = -1, .form = "lse"},
              "vocab_start: expected 0 or a positive number of columns, got -1");
  CHECK(error_of([&] { logprob_with_statistics(x, targets, {.vocab_start = 3}); }) ==
        "Error: warpfuse::fused_logprob: vocab_start: expected 0, since the form \"lse\" alone "
        "knows shards, got 3");
  CHECK(error_of([&] { logprob_with_statistics(x, targets, {.form = "sum"}); }) ==
        "Error: warpfuse::_fused_logprob: form: expected \"logprob\", \"lse\" or \"entropy\", got "
        "\"sum\"");
}

TEST_CASE("Meta logits are checked as others are", "[logprob][errors][meta]") {
  const auto meta = at::TensorOptions(at::kMeta);
  const at::Tensor x = at::zeros({2, 3}, meta);
  CHECK(error_of([&] { logprob(x, at::zeros({3}, meta.dtype(at::kLong)), {}); }) ==
        "Error: warpfuse::fused_logprob: targets: expected shape [2] of logits [2, 3], got [3]");
  CHECK(
      error_of([&] { logprob(x, at::zeros({2}, meta.dtype(at::kLong)), {.temperature = -1.0}); }) ==
      "Error: warpfuse::fused_logprob: temperature: expected a positive, finite number, "
      "got -1");
  CHECK(error_of([&] { logprob(x, at::zeros({2}, at::kLong), {}); }) ==
        "Error: warpfuse::fused_logprob: targets: expected a tensor on meta, got cpu");
}

WARPFUSE_DEVICE_TEST("the backward wants tensors that match", "[logprob][errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor x = at::zeros({2, 3}, options);
  const at::Tensor targets = at::zeros({2}, options.dtype(at::kLong));
  for (const bool in_place : {false, true}) {
    const auto check = [&](const LogprobResults& results, const LogprobGradients& gradients,
                           const LogprobArguments& arguments, const std::string& expected) {
      const std::string name =
          in_place ? "_fused_logprob_backward_: " : "_fused_logprob_backward: ";
      CHECK(error_of([&] {
              if (in_place) {
                logprob_backward_in_place(x, targets, results, gradients, arguments);
              } else {
                logprob_backward(x, targets, results, gradients, arguments);
              }
            }) == "Error: warpfuse::" + name + expected);
      CHECK(x.eq(0).all().item<bool>());
    };
    const LogprobResults good = logprob_with_statistics(x, targets, {.form = "entropy"});
    const auto zeros = [&](at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
      return at::zeros(shape, options.dtype(dtype));
    };
    LogprobResults wrong = good;
    wrong.statistics = zeros({2});
    check(wrong, {}, {}, "statistics: expected shape [2, 2], got [2]");
    wrong.statistics = zeros({2, 2}, at::kDouble);
    check(wrong, {}, {}, "statistics: expected Float, got Double");
    check(good, {.logprob = zeros({3})}, {}, "grad_logprob: expected shape [2], got [3]");
    check(good, {.logprob = zeros({2}, at::kHalf)}, {}, "grad_logprob: expected Float, got Half");
    check(good, {.lse = zeros({2, 1})}, {.form = "lse"},
          "grad_lse: expected shape [2], got [2, 1]");
    check(good, {.entropy = zeros({1})}, {.form = "entropy"},
          "grad_entropy: expected shape [2], got [1]");
    check(good, {.entropy = zeros({2})}, {},
          "entropy: expected a tensor to go with grad_entropy, got none");
    wrong = good;
    wrong.entropy = zeros({1});
    check(wrong, {.entropy = zeros({2})}, {.form = "entropy"},
          "entropy: expected shape [2], got [1]");
    check(good, {}, {.temperature = 0.0}, "temperature: expected a positive, finite number, got 0");
  }
}

WARPFUSE_DEVICE_TEST("logits that cannot be written over", "[logprob][errors]") {
  const auto options = at::TensorOptions(device);
  const auto message = [&](const at::Tensor& x) {
    std::vector<int64_t> leading = x.sizes().vec();
    leading.pop_back();
    const at::Tensor targets = at::zeros(leading, options.dtype(at::kLong));
    const LogprobResults results = logprob_with_statistics(x, targets, {});
    return error_of([&] {
      logprob_backward_in_place(x, targets, results, {.logprob = at::ones_like(results.logprob)},
                                {});
    });
  };
  const std::string prefix = "Error: warpfuse::_fused_logprob_backward_: logits: expected ";
  CHECK(message(at::zeros({1, 3}, options).expand({4, 3})) ==
        prefix + "rows that share no memory, got strides [0, 1] of [4, 3]");
  const std::string dense =
      prefix + "dense columns and leading dimensions of at most two strides, ";
  CHECK(message(at::zeros({3, 4}, options).t()) == dense + "got strides [1, 4] of [4, 3]");
  CHECK(message(at::zeros({3, 4, 5, 6}, options).narrow(1, 0, 3).narrow(2, 1, 3)) ==
        dense + "got strides [120, 30, 6, 1] of [3, 3, 3, 6]");
}

WARPFUSE_GPU_TEST("logits and targets of two devices", "[logprob][errors]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  check_error(x, at::zeros({2}, at::kLong), {}, "targets: expected a tensor on cuda:0, got cpu");
}
