// What only a GPU has: streams, devices and CUDA graphs.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>

#include <atomic>
#include <thread>

#include "support/captured.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operations.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/row_engine.h"
#include "support/threads.h"

namespace {

constexpr int64_t kDelayCycles = 200'000'000;  // about 0.1 s

}  // namespace

WARPFUSE_GPU_TEST("kernels run on the current stream, in its order", "[cuda]") {
  const at::Tensor before = random_tensor({2, 3, 4, 64}, at::kFloat, device);
  const at::Tensor after = random_tensor({2, 3, 4, 64}, at::kFloat, device);
  for (const Operation& operation : operations(before)) {
    INFO(operation.name);
    const at::Tensor expected = operation.run(after).cpu();
    const at::Tensor x = before.clone();
    at::cuda::getCurrentCUDAStream().synchronize();
    const auto side = at::cuda::getStreamFromPool();
    at::Tensor output;
    {
      const c10::cuda::CUDAStreamGuard guard(side);
      operation.run(x);  // so that the stream's memory is there: cudaMalloc may wait
      side.synchronize();
      at::cuda::sleep(kDelayCycles);
      x.copy_(after);  // a kernel of another stream would not wait for this
      output = operation.run(x);
      CHECK_FALSE(side.query());  // the call did not wait either
    }
    side.synchronize();
    CHECK(bit_mismatch(output, expected) == "");
  }
}

WARPFUSE_GPU_TEST("a captured call follows new inputs in replay", "[cuda]") {
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  const at::Tensor x = random_tensor({2, 3, 4, 64}, at::kFloat, device);
  for (const Operation& operation : operations(x)) {
    INFO(operation.name);
    Captured captured([&] { return operation.run(x); });
    for (int replay = 0; replay < 10; ++replay) {
      x.copy_(random_tensor({2, 3, 4, 64}, at::kFloat, device));
      CHECK(bit_mismatch(captured.replay(), operation.run(x)) == "");
    }
  }
}

WARPFUSE_GPU_TEST("positions and lengths are read when the graph is replayed", "[cuda]") {
  const at::Tensor scores = random_tensor({2, 3, 1, 64}, at::kFloat, device);
  const at::Tensor positions = at::zeros({2, 1}, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor lengths = at::zeros({2}, at::TensorOptions(device).dtype(at::kInt));
  const MaskArguments arguments{.query_positions = positions, .key_lengths = lengths};
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  Captured captured([&] { return masked_softmax(scores, arguments); });
  for (int64_t step = 0; step < 64; step += 7) {
    positions.fill_(step);
    lengths.fill_(step / 2 + 1);
    CHECK(mismatch(captured.replay(), expected_masked_softmax(scores, arguments)) == "");
  }
}

WARPFUSE_GPU_TEST("the current device is left as it was", "[cuda]") {
  const at::Tensor x = random_tensor({3, 64}, at::kFloat, device);
  const auto current = c10::cuda::current_device();
  warpfuse::softmax(x, -1);
  masked_softmax(x, {});
  CHECK(c10::cuda::current_device() == current);
}

WARPFUSE_GPU_TEST("a tensor on a device that is not the current one", "[cuda][two-gpus]") {
  if (c10::cuda::device_count() < 2) {
    skip_test("one GPU alone");
    return;
  }
  const at::Device second(at::kCUDA, 1);
  const c10::cuda::CUDAGuard guard(0);
  const at::Tensor x = random_tensor({2, 3, 4, 64}, at::kFloat, second);
  for (const Operation& operation : operations(x)) {
    INFO(operation.name);
    const at::Tensor output = operation.run(x);
    CHECK(output.device() == second);
    CHECK(c10::cuda::current_device() == 0);
    CHECK_FALSE(at::isnan(output).any().item<bool>());
  }
  check_masked_softmax(x, {.causal = "lower_right"});
}

WARPFUSE_GPU_TEST("threads that need different amounts of one kernel's shared memory", "[cuda]") {
  const TuningInUse tuning(tuning_with("block 256 0 1 1"));
  constexpr int kThreads = 8;
  std::vector<at::Tensor> inputs, expected;
  for (int i = 0; i < kThreads; ++i) {
    const int64_t packs = static_cast<int64_t>(row_limits().shared_bytes) / 16 / kThreads * (i + 1);
    inputs.push_back(random_tensor({3, packs / 256 * 256 * 4}, at::kFloat, device));
    REQUIRE(plan_of(warpfuse::Direction::forward, inputs.back()).tier == warpfuse::Tier::block);
    expected.push_back(warpfuse::softmax(inputs.back(), -1));
  }
  std::atomic<int> wrong{0};
  in_threads(kThreads, [&](int i) {
    try {
      for (int call = 0; call < 500; ++call) {
        const at::Tensor output = warpfuse::softmax(inputs[i], -1);
        wrong += call % 50 == 0 && !at::equal(output, expected[i]);
      }
    } catch (const c10::Error&) {
      ++wrong;
    }
  });
  CHECK(wrong == 0);
}

WARPFUSE_GPU_TEST("tables are replaced while other threads launch", "[cuda]") {
  const at::Tensor x = random_tensor({64, 2048}, at::kFloat, device);
  const std::string tables[] = {tuning_with("block 128 4 1 0"), tuning_with("block 256 0 1 1")};
  const TuningInUse before(tables[0]);
  at::Tensor expected[2];
  for (const int i : {0, 1}) {
    set_library_tuning(tables[i]);
    expected[i] = warpfuse::softmax(x, -1);
  }
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, running{4};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 2000; ++call) {
        const at::Tensor output = warpfuse::softmax(x, -1);
        wrong +=
            call % 50 == 0 && !at::equal(output, expected[0]) && !at::equal(output, expected[1]);
      }
      if (--running == 0) {
        done = true;
      }
    });
  }
  for (int i = 0; !done; ++i) {
    set_library_tuning(tables[i % 2]);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

WARPFUSE_GPU_TEST("no launch leaves an error behind", "[cuda]") {
  const auto options = at::TensorOptions(device);
  warpfuse::softmax(at::empty({0, 3}, options), -1);
  warpfuse::softmax(at::empty({3, 0}, options), 0);
  masked_softmax(at::empty({2, 0, 3, 4}, options), {});
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
