// The launch shapes of fused_logprob's kernels: each runs where it is meant to, proved by the
// launch log, and none changes a bit.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"
#include "support/row_engine.h"

namespace {

constexpr int64_t kPieceColumns = 1024;  // of half precision, that a warp has at once

struct Launched {
  std::vector<at::Tensor> results;
  nlohmann::json launches;
};

Launched launched(const at::Tensor& logits, const at::Tensor& targets, const std::string& form) {
  Launched found;
  found.launches =
      launches_during([&] { found.results = logprob(logits, targets, {.form = form}); });
  return found;
}

}  // namespace

WARPFUSE_GPU_TEST("a row of few pieces is a warp's, one of more a block's",
                  "[logprob][launches][portable]") {
  for (const int64_t columns : {kPieceColumns - 1, kPieceColumns, kPieceColumns + 1,
                                2 * kPieceColumns, 2 * kPieceColumns + 1, 5 * kPieceColumns - 1}) {
    const at::Tensor x = random_tensor({5, columns}, at::kBFloat16, device);
    const at::Tensor targets = random_targets({5}, columns, device);
    const ExpectedLogprob expected = expected_logprob(x, targets, {.form = "lse"});
    for (int64_t offset = 0; offset < 3; ++offset) {
      const auto [results, launches] = launched(placed_at(offset, x, device), targets, "lse");
      INFO(columns << " columns at offset " << offset << ": " << launches.dump());
      REQUIRE(launches.size() == 1);
      CHECK(launches[0]["tier"] == (columns <= kPieceColumns ? "warp" : "block"));
      CHECK(launches[0]["local_bytes"] == 0);
      CHECK(mismatch(results[0], expected.logprob) == "");
      CHECK(mismatch(results[1], expected.lse) == "");
    }
  }
}

WARPFUSE_GPU_TEST("few long rows are clusters', with the bits that blocks give",
                  "[logprob][launches][portable]") {
  if (!std::ranges::count(algorithms_on(device), "cluster")) {
    skip_test(kNoClusters);
    return;
  }
  for (const int64_t columns : {12 * kPieceColumns, 50'257L, 128'256L}) {
    const at::Tensor x = random_tensor({2, columns}, at::kHalf, device);
    const at::Tensor targets = random_targets({2}, columns, device);
    for (const std::string& form : kLogprobForms) {
      const Launched in_clusters = launched(placed_at(1, x, device), targets, form);
      const TuningInUse without(tuning_from("cluster_blocks=1"));
      const Launched in_blocks = launched(x, targets, form);
      INFO(columns << " columns, " << form << ": " << in_clusters.launches.dump());
      CHECK(in_clusters.launches[0]["tier"] == "cluster");
      CHECK(in_clusters.launches[0]["cluster"] >= 2);
      CHECK(in_blocks.launches[0]["tier"] == "block");
      for (size_t i = 0; i < in_blocks.results.size(); ++i) {
        CHECK(bit_mismatch(in_clusters.results[i], in_blocks.results[i]) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("many rows take other launch shapes than one, with its bits",
                  "[logprob][launches][portable]") {
  struct Case {
    int64_t rows, columns;
    const char* tier;
  };
  for (const Case c : {Case{30'000, 1500, "warp"}, Case{20'000, 9 * kPieceColumns, "block"}}) {
    const at::Tensor x = random_tensor({c.rows, c.columns}, at::kBFloat16, device);
    const at::Tensor targets = random_targets({c.rows}, c.columns, device);
    const auto [all, launches] = launched(x, targets, "entropy");
    INFO(c.rows << " x " << c.columns << ": " << launches.dump());
    CHECK(launches[0]["tier"] == c.tier);
    for (const int64_t row : {int64_t{0}, c.rows / 2, c.rows - 1}) {
      const auto [alone, alone_launches] =
          launched(placed_at(1, x.narrow(0, row, 1), device), targets.narrow(0, row, 1), "entropy");
      CHECK(alone_launches[0]["threads"] != launches[0]["threads"]);
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(bit_mismatch(all[i].narrow(0, row, 1), alone[i]) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("rows of more pieces than summaries are kept for",
                  "[logprob][launches][portable]") {
  for (const int64_t columns : {2048 * kPieceColumns, 2048 * kPieceColumns + 1, 4'500'001L}) {
    const at::Tensor x = random_tensor({2, columns}, at::kBFloat16, device);
    const at::Tensor targets = random_targets({2}, columns, device);
    const ExpectedLogprob expected = expected_logprob(x, targets, {.form = "entropy"});
    const auto [results, launches] = launched(placed_at(1, x, device), targets, "entropy");
    INFO(columns << " columns: " << launches.dump());
    CHECK(launches[0]["shared_bytes"] <= 48 * 1024);
    CHECK(mismatch(results[0], expected.logprob) == "");
    CHECK(mismatch(results[1], expected.entropy) == "");
  }
}

WARPFUSE_GPU_TEST("gradients laid out otherwise than the logits have the same bits",
                  "[logprob][launches][portable]") {
  for (const int64_t columns : {1, 7, 8, 24, 25, 503, 5003, 50'257}) {
    for (int64_t offset = 0; offset < 8; ++offset) {
      const at::Tensor padded = random_tensor({3, columns + 13}, at::kHalf, device);
      const at::Tensor x = padded.narrow(1, offset, columns);
      const at::Tensor targets = random_targets({3}, columns, device);
      const LogprobArguments arguments{.form = "entropy"};
      const LogprobResults results = logprob_with_statistics(x, targets, arguments);
      const LogprobGradients gradients = random_gradients(results, "entropy");
      const at::Tensor contiguous = x.contiguous();
      const at::Tensor expected =
          logprob_backward(contiguous, targets, results, gradients, arguments);
      INFO(columns << " columns at offset " << offset);
      CHECK(bit_mismatch(logprob_backward(x, targets, results, gradients, arguments), expected) ==
            "");
      const at::Tensor whole = padded.clone();
      logprob_backward_in_place(x, targets, results, gradients, arguments);
      CHECK(bit_mismatch(x, expected) == "");
      // What lies beside the rows stays.
      padded.narrow(1, offset, columns).copy_(whole.narrow(1, offset, columns));
      CHECK(bit_mismatch(padded, whole) == "");
    }
  }
}
