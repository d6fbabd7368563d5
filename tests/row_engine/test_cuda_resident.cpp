// Few long rows that all multiprocessors keep together: one kernel whose blocks wait for each
// other.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>
#include <rowwise/kernel_set.h>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/reference.h"
#include "support/row_functions.h"
#include "support/softmax_checks.h"
#include "support/threads.h"

namespace {

using warpfuse::Direction;
using warpfuse::kernel_set;
using warpfuse::RowPlan;
using warpfuse::Tier;

/// The table with this run first, in blocks with so much shared memory.
std::string tuning_of(const std::string& run, int64_t shared_bytes) {
  return tuning_with(run) + "limit shared_bytes " + std::to_string(shared_bytes) + "\n";
}

bool is_resident(const RowPlan& plan) {
  return plan.tier == Tier::stream && plan.ahead && plan.blocks > 1;
}

}  // namespace

WARPFUSE_GPU_TEST("parts of rows in shared memory, in registers, and read twice",
                  "[resident][portable]") {
  constexpr int64_t kShared = 8192;
  for (const auto& [threads, parts] : {std::pair{32, 5}, {64, 2}}) {
    const TuningInUse tuning(tuning_of(c10::str("stream ", threads, " 0 ", parts, " 1"), kShared));
    for (const at::ScalarType dtype : kDtypes) {
      const auto pack = static_cast<int64_t>(16 / c10::elementSize(dtype));
      const int64_t room = kShared / 16;  // packs of one input
      const int64_t batch = int64_t{threads} * 4;
      for (const int64_t packs_of_part : {int64_t{1}, int64_t{40}, room / 2 - 8, room / 2 + 3, room,
                                          room + batch, room + 3 * batch + 17}) {
        const int64_t keys = packs_of_part * parts * pack + 1;
        for (const Offsets& offsets : {Offsets{}, Offsets{.input = 1, .second = 1},
                                       Offsets{.input = pack - 1, .second = 0}}) {
          for (const RowFunction& function : row_functions(1, 3, keys, dtype, device, offsets)) {
            if (!kernel_set(function.kind).cooperative) {
              continue;
            }
            const RowPlan plan = plan_of(function);
            REQUIRE(is_resident(plan));
            REQUIRE(plan.blocks == parts);
            check_row_function(function, plan);
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("all threads that a table can ask for keep parts of rows",
                  "[resident][portable]") {
  for (const int threads : {96, 256, 512}) {
    const TuningInUse tuning(tuning_with(c10::str("stream ", threads, " 0 7 1")));
    for (const RowFunction& function : row_functions(1, 2, 200'003, at::kHalf, device, {})) {
      const RowPlan plan = plan_of(function);
      REQUIRE(is_resident(plan) == kernel_set(function.kind).cooperative);
      check_row_function(function, plan);
    }
  }
}

WARPFUSE_GPU_TEST("planted values in rows that all multiprocessors keep", "[resident][portable]") {
  const TuningInUse tuning(tuning_of("stream 64 0 3 1", 4096));
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      const at::Tensor x = random_at(0, {5, 9001}, dtype, device);
      REQUIRE(is_resident(plan_of(Direction::forward, x)));
      check_planted(op, x, {0, 7, 8, 1500, 3000, 6000, 8999, 9000, -1}, [&] { return op(x, -1); });
    }
  }
}

WARPFUSE_GPU_TEST("few long rows are kept in one kernel", "[resident][portable]") {
  const TuningInUse tuning(tuning_with("stream 512 0 0 1"));
  const bool large =
      row_limits().multiprocessors == 132 && row_limits().shared_bytes > size_t{200} * 1024;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{16, 1'000'003}, {1, 8'388'617}}) {
    const at::Tensor x = random_at(0, shape, at::kBFloat16, device);
    const at::Tensor g = random_at(1, shape, at::kBFloat16, device);
    const RowPlan forward = plan_of(Direction::forward, x);
    const RowPlan backward = plan_of(Direction::backward, x);
    INFO(describe(x) << ": " << forward.to_string() << "; " << backward.to_string());
    CHECK((!large || (is_resident(forward) && is_resident(backward))));
    at::Tensor y, dx;
    CHECK(static_cast<int>(launches_during([&] { y = warpfuse::softmax(x, -1); }).size()) ==
          launches_of(forward));
    CHECK(static_cast<int>(launches_during([&] { dx = softmax_backward(g, y, -1); }).size()) ==
          launches_of(backward));
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      CHECK(mismatch(op(x, -1), expected_softmax(x, -1, op.log)) == "");
    }
    CHECK(mismatch(dx, expected_softmax_backward(g, y, -1)) == "");
  }
}

WARPFUSE_GPU_TEST("a graph of kernels that wait for all their blocks, replayed",
                  "[resident][portable]") {
  const TuningInUse tuning(tuning_with("stream 512 0 1024 1"));
  const at::Tensor x = random_at(0, {4, 1'000'003}, at::kFloat, device);
  REQUIRE(is_resident(plan_of(Direction::forward, x)));
  const at::Tensor inputs[] = {x.clone(), random_at(0, {4, 1'000'003}, at::kFloat, device)};
  const auto chain = [&] {
    return softmax_backward(x, warpfuse::softmax(warpfuse::log_softmax(x, -1), -1), -1);
  };
  at::Tensor expected[2];
  for (const int i : {0, 1}) {
    x.copy_(inputs[i]);
    expected[i] = chain();
  }
  REQUIRE(bit_mismatch(expected[0], expected[1]) != "");
  c10::cuda::device_synchronize();
  const auto side = at::cuda::getStreamFromPool();
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    const at::Tensor output = chain();
    graph.capture_end();
    int wrong = 0;
    for (int replay = 0; replay < 200; ++replay) {
      x.copy_(inputs[replay % 2]);
      output.fill_(kNaN);
      graph.replay();
      graph.replay();  // right behind itself
      wrong += !at::equal(output, expected[replay % 2]);
    }
    CHECK(wrong == 0);
    side.synchronize();
  }
}

WARPFUSE_GPU_TEST("kernels that wait for all their blocks, on several streams at once",
                  "[resident][portable]") {
  const TuningInUse tuning(tuning_with("stream 512 0 1024 1"));
  constexpr int kStreams = 3, kCalls = 60;
  struct Lane {
    at::Tensor x, expected, filler;
    std::vector<at::Tensor> results;
    c10::cuda::CUDAStream stream = at::cuda::getStreamFromPool();
  };
  std::vector<Lane> lanes(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    lanes[i].x = random_at(i, {i + 1, 2'000'003}, at::kFloat, device);
    lanes[i].expected = warpfuse::softmax(lanes[i].x, -1);
    lanes[i].filler = at::ones({1 << 22}, at::TensorOptions(device));
    REQUIRE(is_resident(plan_of(Direction::forward, lanes[i].x)));
  }
  c10::cuda::device_synchronize();
  // Threads launch at once; between their calls other kernels fill the GPU.
  in_threads(kStreams, [&](int i) {
    Lane& lane = lanes[i];
    const c10::cuda::CUDAStreamGuard guard(lane.stream);
    at::cuda::sleep(20'000'000);
    for (int call = 0; call < kCalls; ++call) {
      if (call % 3 == 1) {
        lane.filler.mul_(1.0001);
      }
      if (call % 7 == 2) {
        at::cuda::sleep(20'000);
      }
      at::Tensor result = warpfuse::softmax(lane.x, -1);
      if (call % 10 == 0) {
        lane.results.push_back(std::move(result));
      }
    }
  });
  for (const Lane& lane : lanes) {
    lane.stream.synchronize();
  }
  for (const Lane& lane : lanes) {
    REQUIRE(lane.results.size() == kCalls / 10);
    for (const at::Tensor& result : lane.results) {
      CHECK(bit_mismatch(result, lane.expected) == "");
    }
  }
}
