#pragma once

#include <algorithm>
#include <chrono>

namespace warpfuse::host {

// When the next token of a decode is due. Steps end evenly on a GPU, but the host sees some of them
// late; so the time of a step is a running mean, and the next token is due a step after the last
// one was, not after it was seen.
class StepClock {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::time_point due() const { return last_ + step_; }

  // The next token came at that time, as far as is known.
  void arrived(Clock::time_point at) {
    // A prompt may have come in between: a step is not taken to be longer.
    constexpr Clock::duration kLongest = std::chrono::milliseconds(2);
    constexpr int kMeanOf = 8;
    step_ += (std::min(at - last_, kLongest) - step_) / kMeanOf;
    last_ = at;
  }

 private:
  Clock::time_point last_;
  Clock::duration step_{};
};

}  // namespace warpfuse::host
