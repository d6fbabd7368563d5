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
  // When to look for it first: where pieces of prompts come between steps, some are due much sooner
  // than their mean is, and a token that is seen late holds up the one who waits for it.
  Clock::time_point first_look() const { return last_ + step_ / 2; }

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
