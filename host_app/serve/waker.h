#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/job.h"

namespace warpfuse::host {

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
