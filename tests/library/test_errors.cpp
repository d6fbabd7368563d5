// Bad input: what is said about it, and that the next good call is none the worse for it.

#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

/// The whole first line; then a good call.
template <typename Call>
void check_error(const Call& call, const std::string& expected) {
  CHECK(error_of(call) == expected);
  const at::Tensor good = at::zeros({1, 4});
  CHECK(warpfuse::softmax(good, 1).eq(0.25).all().item<bool>());
  CHECK(masked_softmax(good, {}).eq(0.25).all().item<bool>());
}

std::string complaint(const std::string& text) { return "Error: warpfuse::" + text; }

constexpr const char* kFloating = "expected float64, float32, float16 or bfloat16, got ";

}  // namespace

WARPFUSE_DEVICE_TEST("a dtype that has no softmax", "[errors]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const auto& [dtype, name] : std::vector<std::pair<at::ScalarType, std::string>>{
             {at::kLong, "Long"}, {at::kBool, "Bool"}, {at::kComplexFloat, "ComplexFloat"}}) {
      const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device).dtype(dtype));
      check_error([&] { op(x, 1); },
                  complaint(op.name + (": self: " + std::string(kFloating)) + name));
    }
    const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
    check_error([&] { op(x, 1, at::kLong); },
                complaint(op.name + (": dtype: " + std::string(kFloating)) + "Long"));
  }
  const at::Tensor integers = at::zeros({2, 3}, at::TensorOptions(device).dtype(at::kInt));
  check_error([&] { masked_softmax(integers, {}); },
              complaint("scaled_masked_softmax: scores: " + std::string(kFloating) + "Int"));
  check_error([&] { softmax_algorithm(integers, 1, "naive"); },
              complaint("_softmax_algorithm: self: " + std::string(kFloating) + "Int"));
  check_error([&] { softmax_backward(integers, integers, 1); },
              complaint("_softmax_backward: output: " + std::string(kFloating) + "Int"));
}

WARPFUSE_DEVICE_TEST("a dim out of range is ATen's IndexError", "[errors]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const at::Tensor point = at::zeros({}, at::TensorOptions(device));
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t dim : {2, 5, -3}) {
      const std::string expected =
          "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got " +
          std::to_string(dim) + ")";
      check_error([&] { op(x, dim); }, expected);
      CHECK(error_of([&] { op.aten(x, dim, std::nullopt); }) == expected);
      check_error([&] { op(x, dim, at::kDouble); }, expected);
      check_error([&] { softmax_algorithm(x, dim, "naive", op.log); }, expected);
      check_error([&] { op.log ? log_softmax_backward(x, x, dim) : softmax_backward(x, x, dim); },
                  expected);
    }
    check_error(
        [&] { op(point, 1); },
        "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  }
}

TEST_CASE("Meta tensors are checked as others are", "[errors][meta]") {
  const at::Tensor x = at::empty({2, 3}, at::TensorOptions(at::kMeta));
  check_error([&] { warpfuse::softmax(x, 7); },
              "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 7)");
  check_error([&] { warpfuse::log_softmax(x.to(at::kLong), 1); },
              complaint("log_softmax: self: " + std::string(kFloating) + "Long"));
  check_error([&] { masked_softmax(x, {.causal = "left"}); },
              complaint("scaled_masked_softmax: causal: expected \"none\", \"upper_left\" or "
                        "\"lower_right\", got \"left\""));
}

WARPFUSE_DEVICE_TEST("the rank of scores", "[errors]") {
  const auto zeros = [&](at::IntArrayRef shape) {
    return at::zeros(shape, at::TensorOptions(device));
  };
  const std::string prefix =
      "scaled_masked_softmax: scores: expected [B, H, Tq, Tk], [B, Tq, Tk] or [Tq, Tk], got ";
  check_error([&] { masked_softmax(zeros({}), {}); }, complaint(prefix + "0 dimensions"));
  check_error([&] { masked_softmax(zeros({3}), {}); }, complaint(prefix + "1 dimensions"));
  check_error([&] { masked_softmax(zeros({1, 1, 1, 1, 1}), {}); },
              complaint(prefix + "5 dimensions"));
}

WARPFUSE_DEVICE_TEST("causal and window", "[errors]") {
  const at::Tensor scores = at::zeros({2, 3}, at::TensorOptions(device));
  for (const std::string word : {"sideways", "", "Upper_left", "upper_left ", "true"}) {
    check_error([&] { masked_softmax(scores, {.causal = word}); },
                complaint("scaled_masked_softmax: causal: expected \"none\", \"upper_left\" or "
                          "\"lower_right\", got \"" +
                          word + "\""));
  }
  check_error([&] { masked_softmax(scores, {.window = -1}); },
              complaint("scaled_masked_softmax: window: expected 0 (none) or a positive number of "
                        "keys, got -1"));
}

WARPFUSE_DEVICE_TEST("attn_mask", "[errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor scores = at::zeros({2, 3, 4, 5}, options);
  const std::string prefix = "scaled_masked_softmax: attn_mask: expected ";
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {4}, {5, 4}, {3, 5}, {2, 4, 5}, {3, 3, 4, 5}, {1, 2, 3, 4, 5}, {0}, {4, 0}}) {
    std::string sizes;
    for (const int64_t size : shape) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    }
    check_error([&] { masked_softmax(scores, {.attn_mask = at::zeros(shape, options)}); },
                complaint(prefix + "a shape that broadcasts to [2, 3, 4, 5], got [" + sizes + "]"));
  }
  for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kHalf, at::kDouble}) {
    check_error(
        [&] { masked_softmax(scores, {.attn_mask = at::zeros({5}, options.dtype(dtype))}); },
        complaint(prefix + "bool or Float, got " + c10::toString(dtype)));
  }
  check_error(
      [&] {
        masked_softmax(scores.to(at::kHalf),
                       {.attn_mask = at::zeros({5}, options.dtype(at::kDouble))});
      },
      complaint(prefix + "bool, Half or Float, got Double"));
}

WARPFUSE_DEVICE_TEST("masked_value without a boolean mask", "[errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor scores = at::zeros({2, 3}, options);
  const std::string prefix =
      "scaled_masked_softmax: masked_value: expected a boolean attn_mask to go with it, got ";
  check_error([&] { masked_softmax(scores, {.masked_value = -1.0}); },
              complaint(prefix + "no attn_mask"));
  check_error(
      [&] { masked_softmax(scores, {.attn_mask = at::zeros({3}, options), .masked_value = -1.0}); },
      complaint(prefix + "Float"));
}

WARPFUSE_DEVICE_TEST("query_positions and key_lengths", "[errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor scores = at::zeros({2, 3, 4, 5}, options);
  const auto integers = [&](at::IntArrayRef shape, at::ScalarType dtype = at::kLong) {
    return at::zeros(shape, options.dtype(dtype));
  };
  const std::string positions = "scaled_masked_softmax: query_positions: expected ";
  for (const auto& [shape, text] :
       std::vector<std::pair<std::vector<int64_t>, std::string>>{{{4}, "[4]"},
                                                                 {{1, 4}, "[1, 4]"},
                                                                 {{2, 5}, "[2, 5]"},
                                                                 {{2, 1}, "[2, 1]"},
                                                                 {{2, 4, 1}, "[2, 4, 1]"},
                                                                 {{}, "[]"}}) {
    check_error([&] { masked_softmax(scores, {.query_positions = integers(shape)}); },
                complaint(positions + "shape [B, Tq] = [2, 4], got " + text));
  }
  check_error([&] { masked_softmax(scores, {.query_positions = integers({2, 4}, at::kFloat)}); },
              complaint(positions + "int32 or int64, got Float"));
  const std::string lengths = "scaled_masked_softmax: key_lengths: expected ";
  for (const auto& [shape, text] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
           {{1}, "[1]"}, {{3}, "[3]"}, {{2, 1}, "[2, 1]"}, {{}, "[]"}}) {
    check_error([&] { masked_softmax(scores, {.key_lengths = integers(shape)}); },
                complaint(lengths + "shape [B] = [2], got " + text));
  }
  check_error([&] { masked_softmax(scores, {.key_lengths = integers({2}, at::kShort)}); },
              complaint(lengths + "int32 or int64, got Short"));
  check_error([&] { masked_softmax(scores[0][0], {.key_lengths = integers({4})}); },
              complaint(lengths + "shape [B] = [1], got [4]"));
}

TEST_CASE("an undefined tensor, or one that is not strided", "[errors]") {
  // With nothing to dispatch on the dispatcher itself may speak first; it must be an error.
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    CHECK(error_of([&] { op(at::Tensor(), 0); }) != "no error");
  }
  CHECK(error_of([&] { masked_softmax(at::Tensor(), {}); }) != "no error");
  const at::Tensor x = at::eye(3);
  CHECK(error_of([&] { softmax_backward(at::Tensor(), x, 0); }) ==
        complaint("_softmax_backward: grad_output: expected a tensor, got an undefined one"));
  CHECK(error_of([&] { softmax_backward(x, at::Tensor(), 0); }) ==
        complaint("_softmax_backward: output: expected a tensor, got an undefined one"));
  CHECK(error_of([&] { warpfuse::softmax(x.to_sparse(), 0); }) != "no error");
  // An undefined optional tensor is an absent one.
  CHECK(masked_softmax(x, {.attn_mask = at::Tensor(),
                           .query_positions = at::Tensor(),
                           .key_lengths = at::Tensor()})
            .equal(masked_softmax(x, {})));
}

WARPFUSE_DEVICE_TEST("backward operators want matching tensors", "[errors]") {
  const auto options = at::TensorOptions(device);
  const at::Tensor output = at::zeros({2, 3}, options);
  for (const std::string name :
       {"_softmax_backward", "_log_softmax_backward", "_scaled_masked_softmax_backward"}) {
    const auto call = [&](const at::Tensor& grad) {
      if (name == "_softmax_backward") {
        return softmax_backward(grad, output, 1);
      }
      if (name == "_log_softmax_backward") {
        return log_softmax_backward(grad, output, 1);
      }
      return masked_softmax_backward(grad, output, {});
    };
    check_error([&] { call(at::zeros({3, 2}, options)); },
                complaint(name + ": grad_output: expected shape [2, 3], got [3, 2]"));
    check_error([&] { call(at::zeros({2, 3}, options.dtype(at::kDouble))); },
                complaint(name + ": grad_output: expected Float, got Double"));
  }
}

WARPFUSE_DEVICE_TEST("an algorithm that is not there", "[errors]") {
  const at::Tensor x = at::zeros({2, 3}, at::TensorOptions(device));
  const std::string got = error_of([&] { softmax_algorithm(x, 1, "fastest"); });
  INFO(got);
  CHECK(got.rfind(complaint("_softmax_algorithm: algorithm: expected "), 0) == 0);
  CHECK(got.find("\"naive\"") != std::string::npos);
  CHECK(got.find(", got \"fastest\"") != std::string::npos);
}

WARPFUSE_GPU_TEST("tensors of two devices", "[errors]") {
  const at::Tensor scores = at::zeros({2, 3}, at::TensorOptions(device));
  const std::string where = "expected a tensor on cuda:0, got cpu";
  check_error([&] { masked_softmax(scores, {.attn_mask = at::zeros({3})}); },
              complaint("scaled_masked_softmax: attn_mask: " + where));
  check_error([&] { masked_softmax(scores, {.query_positions = at::zeros({1, 2}, at::kLong)}); },
              complaint("scaled_masked_softmax: query_positions: " + where));
  check_error([&] { masked_softmax(scores, {.key_lengths = at::zeros({1}, at::kLong)}); },
              complaint("scaled_masked_softmax: key_lengths: " + where));
  check_error([&] { softmax_backward(at::zeros({2, 3}), scores, 1); },
              complaint("_softmax_backward: grad_output: " + where));
}

TEST_CASE("a mask on another device than the scores", "[errors]") {
  const at::Tensor scores = at::zeros({2, 3});
  const at::Tensor meta = at::zeros({2, 3}, at::TensorOptions(at::kMeta));
  CHECK(error_of([&] { masked_softmax(scores, {.attn_mask = meta}); }) != "no error");
  CHECK(error_of([&] { softmax_backward(meta, scores, 1); }) != "no error");
}
