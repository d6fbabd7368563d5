#include "runtime/decode/step_memory.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <atomic>
#include <thread>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

constexpr std::chrono::microseconds kPollInterval{20};
constexpr int kPollsBetweenChecks = 1000;

}  // namespace

StepMemory::StepMemory(int64_t rows, c10::Device device, CudaRuntime* runtime, bool steps_vary)
    : runtime_(runtime), clock_(steps_vary) {
  const c10::InferenceMode inference;
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(device);
  const at::TensorOptions shared = at::TensorOptions(at::kLong).pinned_memory(device.is_cuda());
  columns_ = at::zeros({5, rows}, integers);
  count_ = at::zeros({1}, integers);
  ring_ = at::zeros({kRingSteps, rows}, shared);
  published_ = at::zeros({1}, shared);
  const auto data = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); };
  state_ = {.rows = rows,
            .ids = data(columns_[0]),
            .positions = data(columns_[1]),
            .draws = data(columns_[2]),
            .names = data(columns_[3]),
            .active = data(columns_[4]),
            .count = data(count_),
            .ring = data(ring_),
            .published = data(published_)};
}

void StepMemory::begin(const FirstTokens& first) {
  if (runtime_ != nullptr) {
    runtime_->launch_begin(state_, first);
  } else {
    host::begin(state_, first);
  }
}

void StepMemory::advance_by(const at::Tensor& tokens) {
  const auto* sampled = tokens.const_data_ptr<int64_t>();
  if (runtime_ != nullptr) {
    runtime_->launch_advance(state_, sampled);
  } else {
    advance(state_, sampled, tokens.size(0));
  }
}

// Sleeps until the token may be there, then polls: a poll costs the host as much as launching a
// step.
void StepMemory::wait_for(int64_t step) {
  using Clock = StepClock::Clock;
  const std::atomic_ref<int64_t> published(*state_.published);
  const auto is_there = [&] { return published.load(std::memory_order_acquire) > step; };
  if (!is_there()) {
    std::this_thread::sleep_until(clock_.first_look());
    clock_.woke(Clock::now());
  }
  if (is_there()) {
    return clock_.was_there(Clock::now());
  }
  for (int polls = 1; !is_there(); ++polls) {
    if (polls % kPollsBetweenChecks == 0) {
      const bool idle =
          translating_errors(ExitCode::device, "decode", [&] { return runtime_->idle(); });
      if (idle && !is_there()) {
        fail(ExitCode::device, "decode: the GPU ended step {} without a token", step);
      }
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  clock_.arrived(Clock::now());
}

std::vector<int64_t> StepMemory::read() {
  wait_for(read_);
  const int64_t* first = state_.ring + read_ % kRingSteps * state_.rows;
  ++read_;
  return {first, first + state_.rows};
}

}  // namespace warpfuse::host
