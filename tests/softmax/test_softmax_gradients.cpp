// softmax, log_softmax: the backward operators against their formulas, and autograd against ATen,
// to second order. (Central differences: tests/python/test_operators.py.)

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

void check_backward(const SoftmaxOperator& op, const at::Tensor& grad, const at::Tensor& output,
                    int64_t dim) {
  INFO(op.name << " of " << describe(output) << " over dim " << dim);
  const Poison poison;
  const at::Tensor got =
      op.log ? log_softmax_backward(grad, output, dim) : softmax_backward(grad, output, dim);
  CHECK(got.scalar_type() == output.scalar_type());
  CHECK(got.is_contiguous());
  CHECK(mismatch(got, expected_softmax_backward(grad, output, dim, op.log)) == "");
}

}  // namespace

WARPFUSE_DEVICE_TEST("backward operators follow their formulas", "[softmax][gradient]") {
  std::vector<std::pair<std::vector<int64_t>, int64_t>> cases = {
      {{3, 1}, 1},        {{2, 1023}, -1}, {{2, 1025}, -1}, {{3, 4097}, 1},
      {{1, 50257}, 1},    {{33, 7}, 0},    {{1025, 3}, 0},  {{2, 31, 5}, 1},
      {{2, 129, 33}, -2}, {{}, 0},         {{17}, 0}};
  for (int64_t columns = 2; columns <= 130; ++columns) {
    cases.push_back({{3, columns}, -1});
  }
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const auto& [shape, dim] : cases) {
        const at::Tensor output = op.aten(random_tensor(shape, dtype, device), dim, std::nullopt);
        check_backward(op, random_tensor(shape, dtype, device), output, dim);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("backward operators with any strides and alignment", "[softmax][gradient]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      for (int64_t offset = 0; offset < 16; ++offset) {
        constexpr int64_t kSize = 195;
        const at::Tensor x = random_tensor({kSize + 16}, dtype, device);
        const at::Tensor output =
            op.aten(x, 0, std::nullopt).narrow(0, offset, kSize).view({3, 65});
        check_backward(op, x.narrow(0, 15 - offset, kSize).view({3, 65}), output, -1);
      }
      const at::Tensor output = op.aten(random_tensor({9, 20, 6}, dtype, device), 1, std::nullopt);
      check_backward(op, random_tensor({6, 20, 9}, dtype, device).permute({2, 1, 0}), output, 1);
      check_backward(op, random_tensor({1, 20, 1}, dtype, device).expand({9, 20, 6}), output, 1);
      check_backward(op, random_tensor({9, 20, 12}, dtype, device).slice(2, 0, 12, 2),
                     output.transpose(0, 2).contiguous().transpose(0, 2), 1);
    }
  }
}

WARPFUSE_DEVICE_TEST("gradients and their gradients equal those of ATen", "[softmax][gradient]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t dim : {0, 1, -1}) {
      const at::Tensor values = random_tensor({5, 7, 33}, at::kDouble, device);
      const at::Tensor grad = random_tensor({5, 7, 33}, at::kDouble, device);
      const auto gradient = [&](const auto& function) {
        const at::Tensor x = values.clone().set_requires_grad(true);
        const at::Tensor first =
            torch::autograd::grad({function(x, dim, std::nullopt)}, {x}, {grad},
                                  /*retain_graph=*/true, /*create_graph=*/true)[0];
        return at::stack({first, torch::autograd::grad({first.square().sum()}, {x})[0]}).detach();
      };
      INFO(op.name << " over dim " << dim);
      CHECK(far_apart(gradient(op.plugin), gradient(op.aten), 1e-13) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("a gradient passes through the dtype argument", "[softmax][gradient]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType from : {at::kHalf, at::kBFloat16, at::kFloat}) {
      const at::Tensor x = random_tensor({4, 33}, from, device).set_requires_grad(true);
      const at::Tensor grad = random_tensor({4, 33}, at::kDouble, device);
      const at::Tensor output = op(x, 1, at::kDouble);
      const at::Tensor got = torch::autograd::grad({output}, {x}, {grad})[0];
      CHECK(got.scalar_type() == from);
      const at::Tensor aten = torch::autograd::grad({op.aten(x, 1, at::kDouble)}, {x}, {grad})[0];
      CHECK(aten_mismatch(got, aten) == "");
    }
  }
}

WARPFUSE_DEVICE_TEST("differentiating _softmax_algorithm is an error, not silence",
                     "[softmax][gradient]") {
  const at::Tensor x = random_tensor({4, 33}, at::kFloat, device).set_requires_grad(true);
  const at::Tensor output = softmax_algorithm(x, 1, "naive");
  CHECK(output.requires_grad());
  CHECK(error_of([&] { output.sum().backward(); }).find("not implemented") != std::string::npos);
}
