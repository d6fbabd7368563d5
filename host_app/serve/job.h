#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/decode/generation.h"
#include "serve/request.h"

namespace warpfuse::host {

// What the model's thread says of one choice of a request.
struct Event {
  size_t choice = 0;
  std::optional<Choice> token = {};          // sampled; not the end token
  std::vector<double> prompt_logprobs = {};  // of the prompt's tokens but the first, where asked
  std::optional<FinishReason> finish_reason = {};  // the choice's last event
};

// A request on its way: its HTTP thread reads what the model's thread writes. What waits for a slow
// reader is bounded by what its own choices may say.
class Job {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Job(CompletionRequest asked) : request(std::move(asked)), stopped_(request.choices()) {}

  const CompletionRequest request;
  const Clock::time_point created = Clock::now();

  // The model's thread.

  // Whether anybody reads more of the choice.
  bool wants(size_t choice) const {
    return !cancelled_.load(std::memory_order_relaxed) &&
           !failed_.load(std::memory_order_relaxed) &&
           !stopped_[choice].load(std::memory_order_relaxed);
  }
  // True: the reader waits for this, and somebody has to call wake().
  bool push(Event event) {
    const std::scoped_lock lock(mutex_);
    finished_ += event.finish_reason ? 1 : 0;
    events_.push_back(std::move(event));
    return is_due() && !std::exchange(woken_, true);
  }
  void wake() { changed_.notify_one(); }
  // No more is said of it, unless all was.
  void fail(std::string message) {
    {
      const std::scoped_lock lock(mutex_);
      if (finished_ == request.choices()) {
        return;
      }
      failure_ = std::move(message);
      failed_ = true;
    }
    wake();
  }

  // The HTTP thread.

  // All that was said since the last call; nothing where nothing is due in time.
  std::vector<Event> take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return is_due(); });
    woken_ = false;
    return is_due() ? std::exchange(events_, {}) : std::vector<Event>();
  }
  std::optional<std::string> failure() const {
    const std::scoped_lock lock(mutex_);
    return failure_;
  }
  // The choice has said enough.
  void stop(size_t choice) { stopped_[choice] = true; }
  void cancel() { cancelled_ = true; }

 private:
  // Whoever sends an answer as a whole reads it when it is there, unless its text decides the end.
  bool is_due() const {
    return failure_ ||
           (request.stream || !request.stop_texts.empty() ? !events_.empty()
                                                          : finished_ == request.choices());
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  size_t finished_ = 0;
  bool woken_ = false;  // since the reader looked
  std::optional<std::string> failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> cancelled_ = false;
  std::vector<std::atomic<bool>> stopped_;  // by choice
};

// Wakes the readers of jobs on a thread of its own: to wake a thread takes microseconds, which with
// many rows would be as long as a step of the model.
class Waker {
 public:
  Waker() : thread_([this] { run(); }) {}
  ~Waker() {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    work_.notify_one();
    thread_.join();
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  void wake(std::vector<std::shared_ptr<Job>> jobs) {
    if (jobs.empty()) {
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      std::ranges::move(jobs, std::back_inserter(jobs_));
    }
    work_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return ended_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const std::vector<std::shared_ptr<Job>> jobs = std::exchange(jobs_, {});
      lock.unlock();
      std::ranges::for_each(jobs, [](const std::shared_ptr<Job>& job) { job->wake(); });
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<std::shared_ptr<Job>> jobs_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace warpfuse::host
