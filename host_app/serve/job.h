#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/decode/generation.h"
#include "serve/request.h"

namespace warpfuse::host {

// News of one choice of a request.
struct Piece {
  size_t choice = 0;
  std::string text = {};
  std::vector<Choice> tokens = {};           // sampled; without the end token
  std::vector<double> prompt_logprobs = {};  // of the prompt's tokens but the first, where asked
  std::optional<FinishReason> finish_reason = {};  // the choice's last piece
};

// A request on its way: its HTTP thread reads what the model's thread writes. What waits for a slow
// reader is bounded by what its own choices may say.
class Job {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Job(CompletionRequest asked) : request(std::move(asked)) {}

  const CompletionRequest request;
  const Clock::time_point created = Clock::now();

  // The model's thread.
  void push(Piece piece) {
    const std::scoped_lock lock(mutex_);
    pieces_.push_back(std::move(piece));
    changed_.notify_one();
  }
  void fail(std::string message) {
    const std::scoped_lock lock(mutex_);
    failure_ = std::move(message);
    changed_.notify_one();
  }
  bool cancelled() const {
    const std::scoped_lock lock(mutex_);
    return cancelled_;
  }

  // The HTTP thread.
  std::optional<Piece> pop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return !pieces_.empty() || failure_; });
    if (pieces_.empty()) {
      return std::nullopt;
    }
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }
  std::optional<std::string> failure() const {
    const std::scoped_lock lock(mutex_);
    return failure_;
  }
  void cancel() {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::optional<std::string> failure_;
  bool cancelled_ = false;
};

}  // namespace warpfuse::host
