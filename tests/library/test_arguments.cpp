// The dtype argument, Meta tensors of softmax, and autocast.

#include "support/autocast.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

at::Tensor meta(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(dtype));
}

void check_meta(const at::Tensor& output, at::IntArrayRef sizes, at::ScalarType dtype) {
  CHECK(output.is_meta());
  CHECK(output.sizes() == sizes);
  CHECK(output.scalar_type() == dtype);
  CHECK(output.is_contiguous());
}

}  // namespace

WARPFUSE_DEVICE_TEST("the dtype argument is x.to(dtype) first", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType from : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kInt,
                                      at::kLong, at::kByte, at::kBool}) {
      for (const at::ScalarType to : kDtypes) {
        for (const int64_t dim : {0, 1}) {
          INFO(op.name << ", " << c10::toString(from) << " to " << c10::toString(to));
          const at::Tensor x = random_tensor({7, 130}, at::kDouble, device).abs_().to(from).t();
          const at::Tensor output = op(x, dim, to);
          CHECK(output.scalar_type() == to);
          CHECK(output.is_contiguous());
          CHECK(bit_mismatch(output, op(x.to(to), dim)) == "");
          CHECK(mismatch(output, op.expected(x.to(to), dim)) == "");
        }
      }
    }
  }
}

TEST_CASE("Meta tensors get the shape and dtype of the result, contiguous", "[meta]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      check_meta(op(meta({2, 3, 5}, dtype), 1), {2, 3, 5}, dtype);
      check_meta(op(meta({}, dtype), 0), {}, dtype);
      check_meta(op(meta({0, 4}, dtype), -1), {0, 4}, dtype);
      check_meta(op(meta({3, 5}, dtype).t(), 0), {5, 3}, dtype);
      check_meta(op(meta({3, 5}, dtype), 0, at::kDouble), {3, 5}, at::kDouble);
      check_meta(op(meta({3, 5}, at::kLong), 0, dtype), {3, 5}, dtype);
      check_meta(softmax_algorithm(meta({3, 5}, dtype), 0, "naive", op.log), {3, 5}, dtype);
      const at::Tensor y = meta({2, 3, 5}, dtype);
      check_meta(op.log ? log_softmax_backward(y, y, 1) : softmax_backward(y, y, 1), {2, 3, 5},
                 dtype);
    }
    for (const at::ScalarType mask : {at::kBool, dtype, at::kFloat}) {
      const MaskArguments arguments{.scale = 0.5,
                                    .attn_mask = meta({4, 1, 6}, mask),
                                    .causal = "lower_right",
                                    .query_positions = meta({2, 5}, at::kLong),
                                    .key_lengths = meta({2}, at::kInt),
                                    .window = 3};
      const at::Tensor scores = meta({2, 5, 4, 6}, dtype).transpose(1, 2);
      check_meta(masked_softmax(scores, arguments), {2, 4, 5, 6}, dtype);
      check_meta(masked_softmax_backward(scores, scores, arguments), {2, 4, 5, 6}, dtype);
    }
  }
  check_meta(masked_softmax(meta({0, 2, 3, 4}, at::kHalf), {}), {0, 2, 3, 4}, at::kHalf);
}

WARPFUSE_DEVICE_TEST("autocast gives softmax and log_softmax the dtype that ATen's have",
                     "[autocast]") {
  for (const at::ScalarType cast : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast(device.type(), cast);
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      for (const at::ScalarType from : kDtypes) {
        INFO(op.name << " of " << c10::toString(from) << " under autocast to "
                     << c10::toString(cast));
        const at::Tensor x = random_tensor({5, 33}, from, device).set_requires_grad(true);
        const at::Tensor output = op(x, -1);
        CHECK(output.scalar_type() == op.aten(x, -1, std::nullopt).scalar_type());
        CHECK(mismatch(output, op.expected(x.detach(), -1)) == "");
        const at::Tensor grad = torch::autograd::grad({output}, {x}, {at::ones_like(output)})[0];
        CHECK(grad.scalar_type() == from);
        if (device.is_cuda() && from != at::kDouble) {
          CHECK(output.scalar_type() == at::kFloat);
        }
        CHECK(op(x, -1, at::kHalf).scalar_type() == op.aten(x, -1, at::kHalf).scalar_type());
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("autocast gives scaled_masked_softmax the dtype of its scores", "[autocast]") {
  const Autocast autocast(device.type(), at::kBFloat16);
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = random_tensor({2, 3, 4, 33}, dtype, device);
    CHECK(masked_softmax(scores, {}).scalar_type() == dtype);
    check_masked_softmax(scores, {.attn_mask = random_tensor({4, 33}, at::kFloat, device)});
  }
}

WARPFUSE_DEVICE_TEST("autocast leaves logits as they are, and results in float32",
                     "[autocast][logprob]") {
  for (const at::ScalarType cast : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast(device.type(), cast);
    for (const at::ScalarType dtype : kDtypes) {
      const at::Tensor x = random_tensor({5, 33}, dtype, device);
      const at::Tensor targets = random_targets({5}, 33, device);
      for (const std::string& form : kLogprobForms) {
        check_logprob(x, targets, {.form = form});
        const at::Tensor variable = x.clone().set_requires_grad(true);
        const at::Tensor output = logprob(variable, targets, {.form = form})[0];
        const at::Tensor grad = torch::autograd::grad({output.sum()}, {variable})[0];
        CHECK(grad.scalar_type() == dtype);
      }
    }
  }
}
