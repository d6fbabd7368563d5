// Each tier of the GPU's row engine runs: where the default dispatch chooses it, and by name.

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

/// The tiers whose counters `call` moved.
template <typename Call>
std::vector<std::string> tiers_of(const Call& call) {
  std::vector<std::string> names = {"warp", "block", "stream", "column", "naive"};
  std::vector<CounterDelta> deltas;
  for (const std::string& name : names) {
    deltas.emplace_back(c10::str("tier.", name));
  }
  call();
  std::vector<std::string> moved;
  for (size_t i = 0; i < names.size(); ++i) {
    if (deltas[i]() > 0) {
      moved.push_back(names[i]);
    }
  }
  return moved;
}

using Names = std::vector<std::string>;

}  // namespace

WARPFUSE_GPU_TEST("the default dispatch comes through every tier, with right results", "[tiers]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      const auto check = [&](at::IntArrayRef shape, int64_t dim, const Names& expected) {
        const at::Tensor x = random_tensor(shape, dtype, device);
        at::Tensor output;
        const Names got = tiers_of([&] { output = op(x, dim); });
        INFO(op.name << " of " << describe(x) << " over dim " << dim);
        CHECK(got == expected);
        CHECK(mismatch(output, op.expected(x, dim)) == "");
      };
      check({100, 32}, -1, {"warp"});
      check({7, 4097}, -1, {"block"});
      check({2, 1'000'000}, -1, {"stream"});
      check({33, 70, 5}, 1, {"column"});
      check({3, 0}, -1, {});
    }
  }
  const at::Tensor scores = random_tensor({1, 2, 3, 32}, at::kFloat, device);
  CHECK(tiers_of([&] { masked_softmax(scores, {}); }) == Names{"warp"});
  CHECK(tiers_of([&] { masked_softmax_backward(scores, scores, {}); }) == Names{"warp"});
  const at::Tensor longer = random_tensor({1, 2, 3, 8192}, at::kFloat, device);
  CHECK(tiers_of([&] { masked_softmax(longer, {}); }) == Names{"block"});
  CHECK(tiers_of([&] { softmax_backward(longer, longer, -1); }) == Names{"block"});
  const at::Tensor longest = random_tensor({1, 1, 2, 1'000'000}, at::kFloat, device);
  CHECK(tiers_of([&] { masked_softmax(longest, {}); }) == Names{"stream"});
  CHECK(tiers_of([&] { masked_softmax_backward(longest, longest, {}); }) == Names{"stream"});
}

WARPFUSE_GPU_TEST("a name moves the counter of its tier alone", "[tiers]") {
  const at::Tensor x = random_tensor({5, 32}, at::kFloat, device);
  for (const std::string name : {"naive", "warp", "block", "stream"}) {
    CHECK(tiers_of([&] { softmax_algorithm(x, -1, name); }) == Names{name});
    CHECK(tiers_of([&] { softmax_algorithm(x, -1, name, true); }) == Names{name});
  }
}

WARPFUSE_GPU_TEST("a tier that cannot take a row says so", "[tiers]") {
  const at::Tensor x = random_tensor({2, 3'000'000}, at::kDouble, device);
  for (const std::string name : {"warp", "block"}) {
    const std::string got = error_of([&] { softmax_algorithm(x, -1, name); });
    INFO(got);
    CHECK(got.rfind("Error: warpfuse::_softmax_algorithm: algorithm: expected ", 0) == 0);
    CHECK(got.find(c10::str(", got \"", name, "\"")) != std::string::npos);
  }
  // Rows along another dimension than the last are not contiguous: only naive takes them.
  const at::Tensor column = random_tensor({33, 5}, at::kFloat, device);
  for (const std::string name : {"warp", "block", "stream"}) {
    at::Tensor output;
    const std::string got = error_of([&] { output = softmax_algorithm(column, 0, name); });
    INFO(name << ": " << got);
    if (got == "no error") {
      CHECK(mismatch(output, expected_softmax(column, 0)) == "");
    } else {
      CHECK(got.rfind("Error: warpfuse::_softmax_algorithm: ", 0) == 0);
    }
  }
}

WARPFUSE_GPU_TEST("planted values in every tier", "[tiers]") {
  for (const std::string name : {"naive", "warp", "block", "stream"}) {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      const at::Tensor clean = random_tensor({5, 1000}, at::kHalf, device);
      const at::Tensor clean_output = softmax_algorithm(clean, -1, name, op.log);
      for (const double planted : {kNaN, kInf, -kInf}) {
        for (const int64_t row : {0, 2, 4}) {
          for (const int64_t column : {0, 7, 8, 31, 32, 255, 256, 511, 512, 998, 999}) {
            const at::Tensor x = clean.clone();
            x[row][column].fill_(planted);
            const at::Tensor output = softmax_algorithm(x, -1, name, op.log);
            INFO(name << ", " << op.name << ", " << planted << " at " << row << ", " << column);
            CHECK(mismatch(output, op.expected(x, -1)) == "");
            for (int64_t other = 0; other < 5; ++other) {
              if (other != row) {
                CHECK(bit_mismatch(output[other], clean_output[other]) == "");
              }
            }
          }
        }
      }
    }
  }
}
