#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "runtime/decode/decode_loop.h"
#include "runtime/softmax_call_counter.h"
#include "serve/job.h"
#include "serve/metrics.h"

namespace warpfuse::host {

// Runs jobs on a decode loop: a choice goes into a row as soon as one is free, its prompt is taken
// in by pieces between steps, and its row is free again in the step after it ends or its job is
// cancelled. One thread calls run(), which alone uses the model; any thread the rest. What can be
// done elsewhere is not done there: texts are their readers' work.
class Scheduler {
 public:
  Scheduler(const LanguageModel& model, const Tokenizer& tokenizer, std::vector<int64_t> end_tokens,
            DecodeLoop& loop, int64_t rows, int64_t queue);

  // Throws ApiError(429) when the queue is full, ApiError(503) while the server ends.
  std::shared_ptr<Job> submit(CompletionRequest request);
  // Until drain() was called and no job is left. When the model fails, all jobs do, and it throws.
  void run();
  // Lets no new job in; those that are there go on.
  void drain();
  void cancel_all();
  // Whether an answer is still to be made, or is on its way.
  bool has_jobs() const;

  bool healthy() const;
  Metrics& metrics() { return metrics_; }
  std::string metrics_text() const;

 private:
  // A choice in a row.
  struct Running {
    std::shared_ptr<Job> job;
    size_t choice;
    int64_t limit;  // tokens that the context has room for
    int64_t tokens = 0;
    Job::Clock::time_point last = Job::Clock::now();
  };
  // A job, and its first choice that is in no row yet.
  struct Waiting {
    std::shared_ptr<Job> job;
    size_t next = 0;
  };

  using RunningChoices = std::unordered_map<int64_t, Running>;

  bool wait_for_work();
  void free_unwanted();
  void enter_waiting();
  void enter(const std::shared_ptr<Job>& job, size_t choice);
  void step();
  // Whether the choice goes on.
  bool take(Running& running, SequenceToken token, Job::Clock::time_point now);
  void tell();
  void fail_all(const std::string& message);
  // That somebody reads or the model works on; the caller holds the mutex.
  std::vector<std::shared_ptr<Job>> jobs() const;

  const LanguageModel& model_;
  const Tokenizer& tokenizer_;
  std::vector<int64_t> end_tokens_;
  DecodeLoop& loop_;
  int64_t rows_;
  size_t queue_;
  SoftmaxCallCounter calls_;
  Metrics metrics_;

  // The model's thread alone:
  RunningChoices running_;  // by the sequence's name
  int64_t next_name_ = 0;
  std::vector<std::pair<std::shared_ptr<Job>, Event>> said_;  // and not told yet
  Metrics::Times times_;

  Waker waker_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Waiting> waiting_;
  std::vector<std::weak_ptr<Job>> submitted_;
  std::atomic<int64_t> rows_in_use_ = 0;
  bool draining_ = false;
  bool failed_ = false;
};

}  // namespace warpfuse::host
