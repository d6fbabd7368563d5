// softmax and log_softmax against references in long double and against ATen: dtypes, lengths,
// dims, and what a row must satisfy.

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

void check_values(const SoftmaxOperator& op, const at::Tensor& x, int64_t dim) {
  INFO(op.name << " of " << describe(x) << " over dim " << dim);
  const Poison poison;
  const at::Tensor output = op(x, dim);
  CHECK(output.scalar_type() == x.scalar_type());
  CHECK(output.is_contiguous());
  CHECK(mismatch(output, op.expected(x, dim)) == "");
  // ATen rounds float16's and bfloat16's log_softmax more than once; in float32 it does not. A
  // logarithm near 0 has the absolute error of its sum.
  const bool narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::Tensor aten = op.aten(x, dim, narrow ? at::kFloat : x.scalar_type());
  CHECK(aten_mismatch(output, aten.to(x.scalar_type()),
                      !op.log                          ? 0.0
                      : x.scalar_type() == at::kDouble ? 1e-13
                                                       : 8e-6) == "");
}

void sweep(const at::Device& device, const std::vector<std::vector<int64_t>>& shapes, int64_t dim) {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const std::vector<int64_t>& shape : shapes) {
        check_values(op, random_with_outliers(shape, dtype, device), dim);
      }
    }
  }
}

}  // namespace

WARPFUSE_DEVICE_TEST("rows of every length from 1 to 130", "[softmax]") {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t columns = 1; columns <= 130; ++columns) {
    shapes.push_back({1, columns});
    shapes.push_back({3, columns});
  }
  sweep(device, shapes, -1);
}

WARPFUSE_DEVICE_TEST("rows of powers of two, and one element more or less", "[softmax]") {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t columns = 256; columns <= 65536; columns *= 2) {
    for (const int64_t n : {columns - 1, columns, columns + 1}) {
      shapes.push_back({2, n});
    }
  }
  sweep(device, shapes, 1);
}

WARPFUSE_DEVICE_TEST("rows of vocabularies and other long rows", "[softmax]") {
  sweep(device, {{3, 50257}, {1, 131072}, {1, 262143}, {33, 1023}, {31, 1025}, {5, 4097}}, -1);
}

// The sum grows to 1e5: adding one element after the other would lose bits all the way.
WARPFUSE_DEVICE_TEST("long rows of nearly equal values", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      check_values(op, at::rand({2, 131072}, at::kDouble).to(dtype).to(device), -1);
      check_values(op, at::rand({20000, 3}, at::kDouble).to(dtype).to(device), 0);
    }
  }
}

WARPFUSE_DEVICE_TEST("few and many rows", "[softmax]") {
  std::vector<std::vector<int64_t>> shapes;
  for (const int64_t rows : {1, 2, 3, 31, 32, 33, 65535, 65536}) {
    shapes.push_back({rows, 5});
  }
  for (const int64_t rows : {2, 31, 32, 33}) {
    shapes.push_back({rows, 64});
    shapes.push_back({rows, 127});
  }
  sweep(device, shapes, -1);
}

WARPFUSE_DEVICE_TEST("the first dimension", "[softmax]") {
  sweep(device,
        {{1, 7}, {2, 1}, {31, 33}, {32, 64}, {33, 5}, {127, 3}, {1023, 17}, {4097, 2}, {50257, 3}},
        0);
}

WARPFUSE_DEVICE_TEST("a dimension in the middle", "[softmax]") {
  for (const int64_t dim : {1, -2}) {
    sweep(device,
          {{2, 1, 3},
           {3, 2, 1},
           {2, 31, 5},
           {2, 32, 32},
           {3, 33, 17},
           {1, 127, 65},
           {2, 1025, 3},
           {2, 4097, 9}},
          dim);
  }
  for (const int64_t dim : {-4, -3, 1, 2, 3}) {
    sweep(device, {{3, 5, 7, 9}}, dim);
  }
}

WARPFUSE_DEVICE_TEST("a vector and a 0-dim tensor", "[softmax]") {
  sweep(device, {{1}, {2}, {33}, {1023}}, 0);
  sweep(device, {{}}, 0);
  sweep(device, {{}}, -1);
}

WARPFUSE_DEVICE_TEST("what every row of probabilities satisfies", "[softmax]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t columns : {1, 2, 33, 1023, 4097, 50257}) {
      const at::Tensor x = random_with_outliers({7, columns}, dtype, device);
      INFO(describe(x));
      const at::Tensor y = warpfuse::softmax(x, -1).cpu().to(at::kDouble);
      CHECK(y.min().item<double>() >= 0.0);
      CHECK(y.max().item<double>() <= 1.0);
      const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
      CHECK((y.sum(-1) - 1.0).abs().max().item<double>() <= (narrow ? 4e-3 : 4e-6));
      // The largest logit keeps the largest probability.
      const at::Tensor top = x.cpu().to(at::kDouble).argmax(-1, /*keepdim=*/true);
      CHECK(at::equal(y.gather(-1, top), y.amax(-1, /*keepdim=*/true)));
    }
  }
}

WARPFUSE_DEVICE_TEST("repeated calls give the same bits", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t columns : {33, 1025, 50257}) {
      const at::Tensor x = random_tensor({9, columns}, at::kFloat, device);
      const at::Tensor first = op(x, -1);
      for (int repeat = 0; repeat < 20; ++repeat) {
        REQUIRE(bit_mismatch(op(x, -1), first) == "");
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a row alone has the bits it has inside a batch", "[softmax]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t columns : {1, 31, 64, 1000, 4097}) {
      const at::Tensor x = random_tensor({37, columns}, at::kFloat, device);
      const at::Tensor all = op(x, -1);
      for (const int64_t row : {0, 17, 36}) {
        INFO(op.name << ", " << columns << " columns, row " << row);
        CHECK(bit_mismatch(op(x.narrow(0, row, 1).clone(), -1), all.narrow(0, row, 1)) == "");
      }
    }
  }
}
