// Sizes past 2^16 rows, 2^20 columns and 2^31 elements. Inputs are periodic, so that one small
// reference serves all of them.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/reference.h"
#include "support/row_functions.h"

#ifdef WARPFUSE_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>

#include "support/gpu_memory.h"
#endif

namespace {

/// Compares `output`, rows that repeat every `period`, with the rows of `expected`, block by block.
std::string periodic_mismatch(const at::Tensor& output, const at::Tensor& expected) {
  const int64_t period = expected.size(0);
  const int64_t block = (int64_t{1} << 24) / expected.size(1) / period * period;
  for (int64_t row = 0; row < output.size(0); row += block) {
    const int64_t rows = std::min(block, output.size(0) - row);
    const at::Tensor part = output.narrow(0, row, rows);
    const at::Tensor whole =
        part.narrow(0, 0, rows / period * period).view({-1, period, expected.size(1)});
    if (!whole.eq(expected).all().item<bool>() ||
        !part.narrow(0, rows / period * period, rows % period)
             .eq(expected.narrow(0, 0, rows % period))
             .all()
             .item<bool>()) {
      return c10::str("in rows ", row, " to ", row + rows);
    }
  }
  return "";
}

}  // namespace

WARPFUSE_DEVICE_TEST("more rows than a grid's second dimension has blocks", "[large]") {
  for (const int64_t columns : {2, 40}) {
    const at::Tensor period = random_tensor({1000, columns}, at::kFloat, device);
    const at::Tensor x = period.repeat({200, 1});
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      // Few rows may have another launch, which adds up otherwise.
      const at::Tensor all = op(x, -1), first = all.narrow(0, 0, 1000);
      CHECK(mismatch(first, op.expected(period, -1)) == "");
      CHECK(periodic_mismatch(all, first) == "");
    }
    // 200,000 columns of a matrix, and 200,000 matrices of one column each.
    const at::Tensor across = warpfuse::softmax(x.t(), 0);
    CHECK(mismatch(across.t().narrow(0, 150'000, 1000), expected_softmax(period, -1)) == "");
    const at::Tensor many = warpfuse::softmax(x.view({-1, columns, 1}), 1).view({-1, columns});
    CHECK(mismatch(many.narrow(0, 199'000, 1000), expected_softmax(period, -1)) == "");
    const at::Tensor masked =
        masked_softmax(x.view({100, 2000, columns}), {.causal = "upper_left"});
    CHECK(mismatch(masked.narrow(0, 99, 1),
                   expected_masked_softmax(x.view({100, 2000, columns}).narrow(0, 99, 1),
                                           {.causal = "upper_left"})) == "");
  }
}

WARPFUSE_DEVICE_TEST("one row of a million columns", "[large]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      const at::Tensor x = random_tensor({1, 1 << 20}, dtype, device).narrow(1, 1, (1 << 20) - 3);
      CHECK(mismatch(op(x, -1), op.expected(x, -1)) == "");
      CHECK(mismatch(op(x.t(), 0).t(), op.expected(x, -1)) == "");
    }
  }
}

#ifdef WARPFUSE_WITH_CUDA
namespace {

/// Compares rows that repeat with the expectation of one period, some periods at a time.
std::string far_from_period(const at::Tensor& output, const Expected& expected) {
  const int64_t period = expected.values.size(0);
  const int64_t block = std::max<int64_t>(1, (int64_t{1} << 26) / expected.values.numel()) * period;
  for (int64_t row = 0; row < output.size(0); row += block) {
    const int64_t repeats = std::min(block, output.size(0) - row) / period;
    const Expected repeated{expected.values.repeat({repeats, 1}),
                            expected.error.repeat({repeats, 1})};
    if (std::string text = mismatch(output.narrow(0, row, repeats * period), repeated);
        !text.empty()) {
      return c10::str("from row ", row, ": ", text);
    }
  }
  return "";
}

}  // namespace

WARPFUSE_GPU_TEST("more than 2^31 elements in short rows", "[large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  const at::Tensor period = random_tensor({1000, 64}, at::kHalf, device);
  const int64_t repeats = (int64_t{1} << 31) / period.numel() + 2;
  const at::Tensor x = period.repeat({repeats, 1});
  REQUIRE(x.numel() > int64_t{1} << 31);
  // The first rows, which are as expected, come again and again. Few rows may run otherwise.
  const auto check = [&](const at::Tensor& output, const Expected& expected) {
    const at::Tensor first = output.narrow(0, 0, period.size(0));
    CHECK(mismatch(first, expected) == "");
    CHECK(periodic_mismatch(output, first) == "");
  };
  check(warpfuse::softmax(x, -1), expected_softmax(period, -1));
  check(softmax_backward(x, x, -1), expected_softmax_backward(period, period, -1, false));
  const MaskArguments arguments{.scale = 0.5, .attn_mask = random_bool({64}, device)};
  check(masked_softmax(x, arguments), expected_masked_softmax(period, arguments));
}

WARPFUSE_GPU_TEST("more than 2^31 elements in long rows of every tier", "[large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  // An odd number of columns, so that rows start at every alignment.
  const at::Tensor period = random_at(0, {7, 100'003}, at::kHalf, device);
  const int64_t repeats = (int64_t{1} << 31) / period.numel() + 2;
  const at::Tensor x = period.repeat({repeats, 1});
  REQUIRE(x.numel() > int64_t{1} << 31);
  std::vector<std::string> runs = {"block 512 0 1 1", "stream 512 0 1 0"};
  if (row_limits().cluster_blocks >= 8) {
    runs.emplace_back("cluster 512 8 8 1");
    runs.emplace_back("cluster 512 0 8 1");
  }
  for (const std::string& run : runs) {
    const TuningInUse tuning(tuning_with(run));
    INFO(run << ": " << plan_of(warpfuse::Direction::forward, x).to_string());
    // Rows of another alignment are summed in another order: within roundings, not bit by bit.
    CHECK(far_from_period(warpfuse::softmax(x, -1), expected_softmax(period, -1)) == "");
    const at::Tensor y = at::softmax(period, -1);
    CHECK(far_from_period(softmax_backward(x, y.repeat({repeats, 1}), -1),
                          expected_softmax_backward(period, y, -1)) == "");
  }
}

WARPFUSE_GPU_TEST("more than 2^31 elements in tiles", "[large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  // 72 rows side by side repeat; 2^32 is no multiple of 72.
  for (const int64_t columns : {40, 3000, 20'000}) {
    const at::Tensor period = random_at(0, {columns, 72}, at::kHalf, device);
    const int64_t repeats = (int64_t{1} << 31) / period.numel() + 2;
    for (const int64_t odd : {0, 1}) {  // tiles by 16 bytes, and by elements
      const at::Tensor x = at::cat({period.repeat({1, repeats}), period.narrow(1, 0, odd)}, 1);
      REQUIRE(x.numel() > int64_t{1} << 31);
      const auto launches = launches_during([&] {
        const at::Tensor output = warpfuse::softmax(x, 0).narrow(1, 0, repeats * 72);
        const at::Tensor few = at::softmax(period, 0, at::kFloat);
        // Compared a few columns at a time: each takes 10 bytes an element.
        const int64_t block = std::max<int64_t>(1, (int64_t{1} << 28) / output.size(1));
        for (int64_t column = 0; column < columns; column += block) {
          const int64_t count = std::min(block, columns - column);
          const at::Tensor part =
              output.narrow(0, column, count).reshape({count, repeats, 72}).to(at::kFloat);
          const at::Tensor expected = few.narrow(0, column, count).unsqueeze(1);
          const at::Tensor near = (part - expected).abs() <= expected * 2e-3 + 1e-7;
          REQUIRE(near.all().item<bool>());
        }
      });
      CHECK(launches.size() == 1);
      CHECK(launches[0]["tier"] == "column");
    }
  }
}

WARPFUSE_GPU_TEST("more than 2^31 elements along the first dimension", "[large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  const int64_t columns = (int64_t{1} << 31) / 16 + 999;
  const at::Tensor x = random_tensor({16, 1}, at::kHalf, device).expand({16, columns}).contiguous();
  REQUIRE(x.numel() > int64_t{1} << 31);
  const at::Tensor output = warpfuse::softmax(x, 0);
  const at::Tensor few = warpfuse::softmax(x.narrow(1, 0, 4).contiguous(), 0);
  CHECK(mismatch(few, expected_softmax(x.narrow(1, 0, 4), 0)) == "");
  for (int64_t row = 0; row < 16; ++row) {
    CHECK(output[row].eq(few[row][0]).all().item<bool>());
  }
}

WARPFUSE_GPU_TEST("one row of more than 2^31 elements", "[large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  // All equal: the probability is 1 / columns, which float32 has.
  const int64_t columns = (int64_t{1} << 31) + 7;
  const at::Tensor x = at::zeros({1, columns}, at::TensorOptions(device).dtype(at::kHalf));
  x[0][columns - 1].fill_(10.0);
  const at::Tensor output = warpfuse::softmax(x, -1);
  const double sum = static_cast<double>(columns - 1) + std::exp(10.0);
  CHECK(std::abs(output[0][columns - 1].item<double>() / (std::exp(10.0) / sum) - 1.0) < 2e-2);
  const at::Tensor log = warpfuse::log_softmax(x, -1);
  CHECK(std::abs(log[0][columns - 1].item<double>() - (10.0 - std::log(sum))) < 2e-2);
  CHECK(log.narrow(1, 0, columns - 1).eq(log[0][0]).all().item<bool>());
  CHECK(std::abs(log[0][0].item<double>() + std::log(sum)) < 2e-2);
}
#endif
