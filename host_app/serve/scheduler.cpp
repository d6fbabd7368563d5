#include "serve/scheduler.h"

#include <c10/core/DeviceGuard.h>

#include "runtime/errors.h"
#include "serve/api_error.h"

namespace warpfuse::host {
namespace {

double seconds_between(Job::Clock::time_point from, Job::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Scheduler::Scheduler(const LanguageModel& model, const Tokenizer& tokenizer,
                     std::vector<int64_t> end_tokens, DecodeLoop& loop, int64_t rows, int64_t queue)
    : model_(model),
      tokenizer_(tokenizer),
      end_tokens_(std::move(end_tokens)),
      loop_(loop),
      rows_(rows),
      queue_(static_cast<size_t>(queue)) {}

std::shared_ptr<Job> Scheduler::submit(CompletionRequest request) {
  auto job = std::make_shared<Job>(std::move(request));
  const std::scoped_lock lock(mutex_);
  if (draining_ || failed_) {
    throw ApiError(503, "the server is shutting down");
  }
  if (waiting_.size() >= queue_) {
    throw ApiError(429, "the queue is full, try again later", "", "rate_limit_exceeded");
  }
  waiting_.push_back({.job = job});
  std::erase_if(submitted_, [](const std::weak_ptr<Job>& each) { return each.expired(); });
  submitted_.push_back(job);
  work_.notify_one();
  return job;
}

void Scheduler::drain() {
  const std::scoped_lock lock(mutex_);
  draining_ = true;
  work_.notify_one();
}

void Scheduler::cancel_all() {
  const std::scoped_lock lock(mutex_);
  for (const std::shared_ptr<Job>& job : jobs()) {
    job->cancel();
    job->fail("the server is shutting down");
  }
  work_.notify_one();
}

bool Scheduler::has_jobs() const {
  const std::scoped_lock lock(mutex_);
  return !std::ranges::all_of(submitted_, &std::weak_ptr<Job>::expired);
}

bool Scheduler::healthy() const {
  const std::scoped_lock lock(mutex_);
  return !failed_ && !draining_;
}

std::string Scheduler::metrics_text() const {
  Metrics::Gauges gauges{.queued = 0,
                         .rows_in_use = rows_in_use_,
                         .rows = rows_,
                         .softmax_calls = calls_.total(),
                         .softmax_calls_by_plugin = calls_.by_plugin()};
  {
    const std::scoped_lock lock(mutex_);
    gauges.queued = static_cast<int64_t>(waiting_.size());
  }
  return metrics_.text(gauges);
}

void Scheduler::run() {
  const c10::DeviceGuard device(model_.device());  // its streams are those that are current
  try {
    while (wait_for_work()) {
      free_unwanted();
      enter_waiting();
      step();
    }
    loop_.discard_unread();
  } catch (...) {
    fail_all(describe(std::current_exception(), ExitCode::model).message);
    throw;
  }
}

bool Scheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [this] { return draining_ || !waiting_.empty() || !running_.empty(); });
  return !waiting_.empty() || !running_.empty();
}

void Scheduler::free_unwanted() {
  std::erase_if(running_, [this](const RunningChoices::value_type& each) {
    const auto& [sequence, running] = each;
    if (running.job->wants(running.choice)) {
      return false;
    }
    loop_.stop(sequence);
    return true;
  });
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [](const Waiting& each) { return !each.job->wants(each.next); });
}

void Scheduler::enter_waiting() {
  while (loop_.free_rows() > 0) {
    std::shared_ptr<Job> job;
    size_t choice = 0;
    {
      const std::scoped_lock lock(mutex_);
      if (waiting_.empty()) {
        return;
      }
      Waiting& front = waiting_.front();
      job = front.job;
      choice = front.next++;
      if (front.next == job->request.choices()) {
        waiting_.pop_front();
      }
    }
    if (job->wants(choice)) {
      enter(job, choice);
    }
  }
}

void Scheduler::enter(const std::shared_ptr<Job>& job, size_t choice) {
  const CompletionRequest& request = job->request;
  const std::vector<int64_t>& prompt = request.prompt_of(choice);
  const auto length = static_cast<int64_t>(prompt.size());
  metrics_.count_prompt_tokens(length);
  const bool prompt_scored = request.echo && request.logprobs;
  if (request.max_tokens == 0 && !prompt_scored) {
    said_.emplace_back(job, Event{.choice = choice, .finish_reason = FinishReason::length});
    return;
  }
  const int64_t limit = model_.spec().context - length + 1;
  const int64_t name = next_name_++;
  running_.emplace(name, Running{.job = job, .choice = choice, .limit = limit});
  loop_.enter({.name = name,
               .ids = prompt,
               .tokens = std::min(request.max_tokens, limit),
               .draw = {.sampling = request.sampling,
                        .stream = request.first_stream + static_cast<int64_t>(choice),
                        .scored = request.logprobs.has_value()},
               .prompt_scored = prompt_scored});
}

void Scheduler::step() {
  std::vector<SequenceToken> tokens = loop_.next();
  const auto now = Job::Clock::now();
  for (SequenceToken& token : tokens) {
    const int64_t sequence = token.sequence;
    const auto running = running_.find(sequence);
    if (!take(running->second, std::move(token), now)) {
      loop_.stop(sequence);
      running_.erase(running);
    }
  }
  rows_in_use_ = static_cast<int64_t>(running_.size());
  tell();  // who hears of an end finds its row free
}

bool Scheduler::take(Running& running, SequenceToken token, Job::Clock::time_point now) {
  const CompletionRequest& request = running.job->request;
  Event event{.choice = running.choice, .prompt_logprobs = std::move(token.prompt_logprobs)};
  if (request.max_tokens == 0) {
    event.finish_reason = FinishReason::length;
  } else {
    Choice& choice = token.choice;
    const bool is_end = std::ranges::find(end_tokens_, choice.id) != end_tokens_.end();
    if (!is_end && !tokenizer_.has(choice.id)) {
      loop_.stop_poisoned(token.sequence);
      running.job->fail(choice.id < 0 ? "the model gave a NaN logit"
                                      : "the model gave an unknown token");
      return false;
    }
    if (running.tokens == 0) {
      times_.first.push_back(seconds_between(running.job->created, now));
    } else {
      times_.later.push_back(seconds_between(running.last, now));
    }
    running.last = now;
    event.finish_reason = finish_after(++running.tokens, is_end, /*text_goes_on=*/true,
                                       request.max_tokens, running.limit);
    if (!is_end) {
      event.token = std::move(choice);
    }
  }
  const bool goes_on = !event.finish_reason;
  said_.emplace_back(running.job, std::move(event));
  return goes_on;
}

void Scheduler::tell() {
  metrics_.count_tokens(times_);  // who hears of a token finds it counted
  times_.first.clear();
  times_.later.clear();
  std::vector<std::shared_ptr<Job>> waiting;
  for (auto& [job, event] : said_) {
    if (job->push(std::move(event))) {
      waiting.push_back(std::move(job));
    }
  }
  said_.clear();
  waker_.wake(std::move(waiting));
}

void Scheduler::fail_all(const std::string& message) {
  const std::scoped_lock lock(mutex_);
  failed_ = true;
  for (const std::shared_ptr<Job>& job : jobs()) {
    job->fail(message);
  }
  waiting_.clear();
}

std::vector<std::shared_ptr<Job>> Scheduler::jobs() const {
  std::vector<std::shared_ptr<Job>> jobs;
  for (const std::weak_ptr<Job>& each : submitted_) {
    if (std::shared_ptr<Job> job = each.lock()) {
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

}  // namespace warpfuse::host
