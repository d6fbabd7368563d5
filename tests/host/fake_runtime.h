#pragma once

#include <c10/util/Exception.h>

#include <functional>
#include <memory>
#include <utility>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/step_state.h"

// Plays a GPU on the CPU: a graph is its work, run at each replay.
class FakeRuntime : public warpfuse::host::CudaRuntime {
 public:
  warpfuse::host::CudaDevice device() const override {
    return {.name = "fake", .driver = "1", .free_bytes = free_bytes};
  }
  std::unique_ptr<warpfuse::host::CudaGraph> capture(
      const std::function<void()>& work, const warpfuse::host::CudaGraph* memory_of) override {
    ++captures;
    shared_memory += memory_of != nullptr ? 1 : 0;
    TORCH_CHECK(can_capture, "operation not permitted\nwhen stream is capturing");
    return std::make_unique<Graph>(work);
  }
  void warm_up(const std::function<void()>& work) override { work(); }
  std::unique_ptr<warpfuse::host::CudaStopwatch> stopwatch() override { return nullptr; }
  void synchronize() override {}
  bool idle() override { return true; }
  int64_t peak_bytes(const std::function<void()>&) override { return 0; }
  void release_memory() override { free_bytes += std::exchange(kept_bytes, 0); }
  void launch_empty_kernel() override {}
  void launch_copy(void*, const void*, int64_t) override {}
  void launch_advance(const warpfuse::host::StepState& state, const int64_t* tokens) override {
    if (publishes) {
      warpfuse::host::advance(state, tokens, state.rows);
    }
  }
  void launch_begin(const warpfuse::host::StepState& state,
                    const warpfuse::host::FirstTokens& first) override {
    if (publishes) {
      warpfuse::host::begin(state, first);
    }
  }
  void start_profiler() override {}
  void stop_profiler() override {}

  int64_t free_bytes = int64_t{1} << 30;
  int64_t kept_bytes = 0;  // by the allocator, unused
  bool can_capture = true;
  bool publishes = true;
  int captures = 0, shared_memory = 0;

 private:
  struct Graph : warpfuse::host::CudaGraph {
    explicit Graph(std::function<void()> work) : work(std::move(work)) {}
    void replay() override { work(); }
    int64_t kernels() const override { return 1; }
    std::function<void()> work;
  };
};
