// Calls from several threads at once give what one thread gives.

#include <atomic>
#include <set>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/operations.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/threads.h"

WARPFUSE_DEVICE_TEST("eight threads, each with calls of its own", "[threads]") {
  constexpr int kThreads = 8, kCallsPerThread = 20;
  struct Work {
    at::Tensor x;
    std::vector<Operation> calls;
    std::vector<at::Tensor> expected;
  };
  std::vector<Work> works;
  const std::string counter = "softmax." + backend_name(device);
  const CounterDelta serial(counter);
  for (int i = 0; i < kThreads; ++i) {
    Work& work = works.emplace_back();
    work.x = random_tensor({2, 3, 14, 30 + 17 * i}, i % 2 ? at::kHalf : at::kFloat, device);
    work.calls = operations(work.x);
    for (const Operation& call : work.calls) {
      work.expected.push_back(call.run(work.x).cpu());
    }
  }
  const int64_t calls = serial();
  CHECK(calls > 0);
  const CounterDelta counted(counter);
  std::atomic<int> wrong{0};
  in_threads(kThreads, [&](int i) {
    const Work& work = works[i];
    for (int n = 0; n < kCallsPerThread; ++n) {
      for (size_t c = 0; c < work.calls.size(); ++c) {
        wrong += !bit_mismatch(work.calls[c].run(work.x), work.expected[c]).empty();
      }
    }
  });
  CHECK(wrong == 0);
  CHECK(counted() == calls * kCallsPerThread);
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
  const at::Tensor x = random_tensor({2, 75, 2, 4097}, at::kFloat);
  for (const Operation& operation : operations(x)) {
    INFO(operation.name);
    const at::Tensor expected = operation.run(x);
    for (const int n : {2, 3, 8}) {
      const Threads more(n);
      CHECK(bit_mismatch(operation.run(x), expected) == "");
    }
  }
}
