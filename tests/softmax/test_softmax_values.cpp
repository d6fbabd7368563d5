// softmax and log_softmax against references in long double and against ATen: dtypes, short rows,
// dims, and what a row must satisfy.

#include "support/devices.h"
#include "support/pch.h"
#include "support/softmax_checks.h"

WARPFUSE_DEVICE_TEST("rows of every length from 1 to 130", "[softmax][portable]") {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t columns = 1; columns <= 130; ++columns) {
    shapes.push_back({1, columns});
    shapes.push_back({3, columns});
  }
  sweep_softmax(device, shapes, -1);
}

WARPFUSE_DEVICE_TEST("the first dimension", "[softmax][portable]") {
  sweep_softmax(
      device,
      {{1, 7}, {2, 1}, {31, 33}, {32, 64}, {33, 5}, {127, 3}, {1023, 17}, {4097, 2}, {50257, 3}},
      0);
}

WARPFUSE_DEVICE_TEST("a dimension in the middle", "[softmax][portable]") {
  for (const int64_t dim : {1, -2}) {
    sweep_softmax(device,
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
    sweep_softmax(device, {{3, 5, 7, 9}}, dim);
  }
}

WARPFUSE_DEVICE_TEST("a vector and a 0-dim tensor", "[softmax][portable]") {
  sweep_softmax(device, {{1}, {2}, {33}, {1023}}, 0);
  sweep_softmax(device, {{}}, 0);
  sweep_softmax(device, {{}}, -1);
}

WARPFUSE_DEVICE_TEST("what every row of probabilities satisfies", "[softmax][portable]") {
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

WARPFUSE_DEVICE_TEST("repeated calls give the same bits", "[softmax][portable]") {
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

// Sums follow the 16-byte packs of a row, so the row alone has to start where it does in the batch.
WARPFUSE_DEVICE_TEST("a row alone, as aligned, has the bits it has inside a batch",
                     "[softmax][portable]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const int64_t columns : {1, 31, 64, 1000, 4097}) {
      const at::Tensor x = random_tensor({37, columns}, at::kFloat, device);
      const at::Tensor all = op(x, -1);
      for (const int64_t row : {0, 17, 36}) {
        INFO(op.name << ", " << columns << " columns, row " << row);
        const at::Tensor alone = placed_at(row * columns % 4, x.narrow(0, row, 1), device);
        CHECK(bit_mismatch(op(alone, -1), all.narrow(0, row, 1)) == "");
      }
    }
  }
}
