// Each tier of the GPU's row engine runs: where the default dispatch chooses it, and by name.

#include <rowwise/cuda/device_limits.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/softmax_checks.h"

namespace {

/// The tiers whose counters `call` moved.
template <typename Call>
std::vector<std::string> tiers_of(const Call& call) {
  const std::vector<std::string> names = {"warp",   "span",   "block", "cluster",
                                          "stream", "column", "naive"};
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

using warpfuse::Direction;

Names tier_of(const warpfuse::RowPlan& plan) { return {warpfuse::to_string(plan.tier)}; }

}  // namespace

WARPFUSE_GPU_TEST("the default dispatch runs what the table says, with right results",
                  "[tiers][portable]") {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      const auto check = [&](at::IntArrayRef shape, int64_t dim,
                             const std::optional<Names>& expected) {
        const at::Tensor x = random_tensor(shape, dtype, device);
        at::Tensor output;
        const Names got = tiers_of([&] { output = op(x, dim); });
        INFO(op.name << " of " << describe(x) << " over dim " << dim);
        CHECK(got == (expected ? *expected : tier_of(plan_of(Direction::forward, x))));
        CHECK(mismatch(output, op.expected(x, dim)) == "");
      };
      check({100, 32}, -1, std::nullopt);
      check({7, 4097}, -1, std::nullopt);
      check({7, 20'000}, -1, std::nullopt);
      check({3, 60'000}, -1, std::nullopt);
      check({2, 1'000'000}, -1, std::nullopt);
      check({33, 70, 5}, 1, Names{"column"});
      const at::Tensor contiguous = random_tensor({3, 60}, dtype, device);
      check({3, 60, 1}, 1, tier_of(plan_of(Direction::forward, contiguous)));  // rows after all
      check({3, 0}, -1, Names{});
    }
  }
  for (const int64_t keys : {32, 1000, 1024, 8192, 60'000, 1'000'000}) {
    const at::Tensor scores = random_tensor({1, 2, 3, keys}, at::kFloat, device);
    const Names forward = tier_of(plan_of(Direction::forward, scores));
    const Names backward = tier_of(plan_of(Direction::backward, scores));
    const auto of_attention = [&](Direction direction) {
      return tier_of(plan_of(attention_kind(direction, scores.element_size()), scores, true));
    };
    const MaskArguments causal{.causal = "lower_right"};
    CHECK(tiers_of([&] { masked_softmax(scores, causal); }) == of_attention(Direction::forward));
    CHECK(tiers_of([&] { masked_softmax_backward(scores, scores, causal); }) ==
          of_attention(Direction::backward));
    CHECK(tiers_of([&] { masked_softmax(scores, {}); }) == forward);
    CHECK(tiers_of([&] { masked_softmax_backward(scores, scores, {}); }) == backward);
    CHECK(tiers_of([&] { warpfuse::softmax(scores, -1); }) == forward);
    CHECK(tiers_of([&] { softmax_backward(scores, scores, -1); }) == backward);
    CHECK(tiers_of([&] { log_softmax_backward(scores, scores, -1); }) == backward);
  }
}

WARPFUSE_GPU_TEST("a Hopper GPU and code for it make clusters of 16 blocks", "[tiers][portable]") {
  const auto built = nlohmann::json::parse(warpfuse::build_info())["architectures"];
  const bool has_code = std::ranges::find(built, "9.0a") != built.end();
  const auto gpu = nlohmann::json::parse(warpfuse::device_info())["gpus"][device.index()];
  if (!has_code || gpu["compute_capability"] != "9.0") {
    skip_test("no Hopper GPU, or a library without its code");
    return;
  }
  CHECK(warpfuse::cuda::device_limits().rows.cluster_blocks == 16);
  CHECK(warpfuse::cuda::device_limits().rows.shared_bytes > size_t{200} * 1024);
  CHECK(warpfuse::cuda::device_limits().dependent_launch);
}

WARPFUSE_GPU_TEST("a name moves the counter of its tier alone", "[tiers][portable]") {
  const at::Tensor x = random_tensor({5, 32}, at::kFloat, device);
  for (const std::string& name : algorithms_on(device)) {
    CHECK(tiers_of([&] { softmax_algorithm(x, -1, name); }) == Names{name});
    CHECK(tiers_of([&] { softmax_algorithm(x, -1, name, true); }) == Names{name});
  }
}

WARPFUSE_GPU_TEST("a tier that cannot take a row says so", "[tiers][portable]") {
  const auto check_refused = [](const at::Tensor& x, int64_t dim, const std::string& name) {
    std::string got;
    CHECK(tiers_of([&] { got = error_of([&] { softmax_algorithm(x, dim, name); }); }).empty());
    INFO(got);
    CHECK(got.rfind("Error: warpfuse::_softmax_algorithm: algorithm: expected ", 0) == 0);
    CHECK(got.find(c10::str(", got \"", name, "\"")) != std::string::npos);
  };
  const at::Tensor x = random_tensor({2, 3'000'000}, at::kDouble, device);
  for (const std::string name : {"block", "cluster"}) {
    check_refused(x, -1, name);
  }
  // Rows along another dimension than the last are not contiguous: only naive takes them.
  const at::Tensor column = random_tensor({33, 5}, at::kFloat, device);
  for (const std::string name : {"warp", "block", "cluster", "stream"}) {
    check_refused(column, 0, name);
  }
  const TuningInUse without(tuning_from("cluster_blocks=1"));
  check_refused(random_tensor({5, 32}, at::kFloat, device), -1, "cluster");
}

WARPFUSE_GPU_TEST("planted values in every tier", "[tiers][portable]") {
  for (const std::string& name : algorithms_on(device)) {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      INFO(name);
      const at::Tensor x = random_tensor({5, 1000}, at::kHalf, device);
      check_planted(op, x, {0, 7, 8, 31, 32, 255, 256, 511, 512, 998, 999},
                    [&] { return softmax_algorithm(x, -1, name, op.log); });
    }
  }
}
