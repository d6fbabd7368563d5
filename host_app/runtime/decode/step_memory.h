#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/step_state.h"

namespace warpfuse::host {

// When the next token of a decode is due. Steps end evenly on a GPU, but the host sees some of them
// late; so the time of a step is a running mean, and the next token is due a step after the last
// one was, not after it was seen.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  // varies: pieces of prompts come between steps.
  explicit StepClock(bool varies = false) : varies_(varies) {}

  Clock::time_point due() const { return last_ + step_; }
  // When to look for it first: a look costs the host as much as half of a launch. Where steps vary,
  // some are due much sooner than their mean is, and a token that is seen late holds up the one who
  // waits for it.
  Clock::time_point first_look() const { return varies_ ? last_ + step_ / 2 : due() - oversleep_; }
  // The host woke for its first look; much later if something held it up.
  void woke(Clock::time_point at) {
    constexpr Clock::duration kLongest = std::chrono::microseconds(200);
    oversleep_ += (std::min(at - first_look(), kLongest) - oversleep_) / kMeanOf;
  }

  // The next token came at that time, as far as is known.
  void arrived(Clock::time_point at) {
    // A prompt may have come in between: a step is not taken to be longer.
    constexpr Clock::duration kLongest = std::chrono::milliseconds(2);
    step_ += (std::min(at - last_, kLongest) - step_) / kMeanOf;
    last_ = at;
  }
  // It was there when the host looked first. It is taken to have come a little before it was due,
  // or looks would be later and later.
  void was_there(Clock::time_point at) {
    constexpr int kEarlierBy = 32;
    arrived(std::min(due(), at) - (varies_ ? Clock::duration{} : step_ / kEarlierBy));
  }

 private:
  static constexpr int kMeanOf = 8;

  bool varies_;
  Clock::time_point last_;
  Clock::duration step_{}, oversleep_{};
};

// What decode steps read and leave for the next one, by row, and the ring by which the host reads
// their tokens. Whatever writes tokens into the ring is a step here, a piece of a prompt too.
class StepMemory {
 public:
  StepMemory(int64_t rows, c10::Device device, CudaRuntime* runtime, bool steps_vary);

  // Of the first rows: i64[B, 1], i64[B, 1], i64[B], i64[B].
  at::Tensor ids(int64_t rows) const { return columns_[0].narrow(0, 0, rows).unsqueeze(1); }
  at::Tensor positions(int64_t rows) const { return columns_[1].narrow(0, 0, rows).unsqueeze(1); }
  at::Tensor draws(int64_t rows) const { return columns_[2].narrow(0, 0, rows); }
  at::Tensor names(int64_t rows) const { return columns_[3].narrow(0, 0, rows); }

  void begin(const FirstTokens& first);
  void deactivate(const at::Tensor& rows) { columns_.index_fill_(1, rows, 0); }

  // Takes the tokens of the first rows, and publishes them.
  void advance_by(const at::Tensor& tokens);
  // Waits for the oldest unread step, and returns its tokens by row.
  std::vector<int64_t> read();

 private:
  void wait_for(int64_t step);

  CudaRuntime* runtime_;
  at::Tensor columns_;    // i64[5, B]: ids, positions, draws, names, active
  at::Tensor count_;      // i64[1]
  at::Tensor ring_;       // i64[kRingSteps, B], memory of the host
  at::Tensor published_;  // i64[1], memory of the host
  StepState state_;
  int64_t read_ = 0;  // steps
  StepClock clock_;
};

}  // namespace warpfuse::host
