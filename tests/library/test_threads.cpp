// Calls from several threads at once give what one thread gives.

#include <atomic>
#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/threads.h"

namespace {

constexpr int kThreads = 8;
constexpr int kCallsPerThread = 200;

}  // namespace

WARPFUSE_DEVICE_TEST("eight threads, each with calls of its own", "[threads]") {
  struct Work {
    at::Tensor input;
    MaskArguments arguments;
    at::Tensor softmax;
    at::Tensor log_softmax;
    at::Tensor masked;
    at::Tensor targets;
    at::Tensor logprob;
  };
  std::vector<Work> works;
  for (int i = 0; i < kThreads; ++i) {
    Work work;
    work.input = random_tensor({4, 3, 7, 30 + 17 * i}, i % 2 ? at::kHalf : at::kFloat, device);
    work.arguments.causal = i % 3 ? "lower_right" : "none";
    work.arguments.attn_mask = random_bool({7, 30 + 17 * i}, device);
    work.softmax = warpfuse::softmax(work.input, i % 2 ? -1 : 1).cpu();
    work.log_softmax = warpfuse::log_softmax(work.input, -1).cpu();
    work.masked = masked_softmax(work.input, work.arguments).cpu();
    work.targets = random_targets({4, 3, 7}, 30 + 17 * i, device);
    work.logprob = warpfuse::fused_logprob(work.input, work.targets).cpu();
    works.push_back(work);
  }
  const CounterDelta counted("softmax." + backend_name(device));
  std::atomic<int> wrong{0};
  in_threads(kThreads, [&](int i) {
    const Work& work = works[i];
    for (int n = 0; n < kCallsPerThread; ++n) {
      wrong += !bit_mismatch(warpfuse::softmax(work.input, i % 2 ? -1 : 1), work.softmax).empty();
      wrong += !bit_mismatch(warpfuse::log_softmax(work.input, -1), work.log_softmax).empty();
      wrong += !bit_mismatch(masked_softmax(work.input, work.arguments), work.masked).empty();
      wrong +=
          !bit_mismatch(warpfuse::fused_logprob(work.input, work.targets), work.logprob).empty();
    }
  });
  CHECK(wrong == 0);
  CHECK(counted() == int64_t{kThreads} * kCallsPerThread);
}

WARPFUSE_DEVICE_TEST("two threads differentiate at once", "[threads]") {
  const at::Tensor values = random_tensor({5, 130}, at::kDouble, device);
  const auto gradient = [&] {
    const at::Tensor x = values.clone().set_requires_grad(true);
    return torch::autograd::grad({warpfuse::softmax(x, -1).pow(2).sum()}, {x})[0];
  };
  const at::Tensor serial = gradient();
  std::atomic<int> wrong{0};
  in_threads(2, [&](int) {
    for (int n = 0; n < 100; ++n) {
      wrong += !bit_mismatch(gradient(), serial).empty();
    }
  });
  CHECK(wrong == 0);
}

WARPFUSE_DEVICE_TEST("threads that draw at once share no random numbers", "[threads][dropout]") {
  constexpr int kThreads = 4, kCalls = 200;
  const at::Tensor x = random_tensor({2, 8}, at::kFloat, device);
  std::vector<std::vector<at::Tensor>> drawn(kThreads);
  in_threads(kThreads, [&](int i) {
    for (int n = 0; n < kCalls; ++n) {
      drawn[i].push_back(std::get<2>(dropout_softmax(x, {})).cpu());
    }
  });
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const std::vector<at::Tensor>& all : drawn) {
    for (const at::Tensor& rng : all) {
      seen.emplace(rng[0].item<int64_t>(), rng[1].item<int64_t>());
    }
  }
  CHECK(seen.size() == size_t{kThreads} * kCalls);
}

TEST_CASE("the number of ATen's threads changes no bit", "[threads]") {
  const Threads one(1);
  const at::Tensor x = random_tensor({300, 4097}, at::kFloat);
  const at::Tensor rows = warpfuse::softmax(x, 1);
  const at::Tensor columns = warpfuse::softmax(x, 0);
  const at::Tensor masked = masked_softmax(x, {.causal = "lower_right"});
  const at::Tensor rng = rng_of(3, 8, at::kCPU);
  const auto dropped = [&](int64_t dim) {
    return std::get<0>(dropout_softmax(x, {.dim = dim}, rng));
  };
  const at::Tensor dropped_rows = dropped(1), dropped_columns = dropped(0);
  const at::Tensor dropped_masked =
      std::get<0>(masked_dropout(x, {.causal = "lower_right"}, 0.5, rng));
  for (const int n : {2, 3, 8}) {
    const Threads more(n);
    CHECK(bit_mismatch(warpfuse::softmax(x, 1), rows) == "");
    CHECK(bit_mismatch(warpfuse::softmax(x, 0), columns) == "");
    CHECK(bit_mismatch(masked_softmax(x, {.causal = "lower_right"}), masked) == "");
    CHECK(bit_mismatch(dropped(1), dropped_rows) == "");
    CHECK(bit_mismatch(dropped(0), dropped_columns) == "");
    CHECK(bit_mismatch(std::get<0>(masked_dropout(x, {.causal = "lower_right"}, 0.5, rng)),
                       dropped_masked) == "");
  }
}
