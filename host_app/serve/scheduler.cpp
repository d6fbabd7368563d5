#include "serve/scheduler.h"

#include <algorithm>
#include <utility>

#include "runtime/errors.h"
#include "runtime/score/perplexity.h"
#include "serve/api_error.h"

namespace warpfuse::host {
namespace {

// Bounds how long a long prompt keeps the other rows waiting.
constexpr int64_t kPieceTokens = 128;

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
  const auto cancel = [](Job& job) {
    job.cancel();
    job.fail("the server is shutting down");
  };
  std::ranges::for_each(waiting_, [&](const Waiting& each) { cancel(*each.job); });
  for (const std::weak_ptr<Job>& each : in_rows_) {
    if (const std::shared_ptr<Job> job = each.lock()) {
      cancel(*job);
    }
  }
  work_.notify_one();
}

bool Scheduler::healthy() const {
  const std::scoped_lock lock(mutex_);
  return !failed_ && !draining_;
}

std::string Scheduler::metrics_text() const {
  Metrics::Gauges gauges{.queued = 0,
                         .rows_in_use = 0,
                         .rows = rows_,
                         .softmax_calls = calls_.total(),
                         .softmax_calls_by_plugin = calls_.by_plugin()};
  {
    const std::scoped_lock lock(mutex_);
    gauges.queued = static_cast<int64_t>(waiting_.size());
    gauges.rows_in_use = rows_in_use_;
  }
  return metrics_.text(gauges);
}

void Scheduler::run() {
  try {
    while (wait_for_work()) {
      free_cancelled();
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

void Scheduler::free_cancelled() {
  std::vector<int64_t> ended;
  for (const auto& [sequence, running] : running_) {
    if (running.job->cancelled() || running.job->failure()) {
      ended.push_back(sequence);
    }
  }
  std::ranges::for_each(ended, [this](int64_t sequence) { end(sequence); });
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [](const Waiting& each) { return each.job->cancelled(); });
}

const std::vector<int64_t>& Scheduler::prompt_of(const Job& job, size_t choice) const {
  return job.request.prompts[choice / static_cast<size_t>(job.request.n)];
}

int64_t Scheduler::limit_of(const Job& job, size_t choice) const {
  const auto length = static_cast<int64_t>(prompt_of(job, choice).size());
  return model_.spec().context - length + 1;
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
      std::erase_if(in_rows_, [](const std::weak_ptr<Job>& each) { return each.expired(); });
      in_rows_.push_back(job);
    }
    if (!job->failure() && !job->cancelled()) {
      enter(job, choice);
    }
  }
}

void Scheduler::enter(const std::shared_ptr<Job>& job, size_t choice) {
  const CompletionRequest& request = job->request;
  const std::vector<int64_t>& prompt = prompt_of(*job, choice);
  Running running{.job = job, .choice = choice, .text = TextOutput(request.stop_texts)};
  metrics_.count_prompt_tokens(static_cast<int64_t>(prompt.size()));
  if (request.echo) {
    Piece echoed{.choice = choice, .text = running.text.show(tokenizer_.decode(prompt))};
    if (request.logprobs) {
      echoed.prompt_logprobs = token_logprobs(model_, prompt);
    }
    if (request.max_tokens == 0) {
      echoed.text += running.text.finish();
      echoed.finish_reason = FinishReason::length;
    }
    job->push(std::move(echoed));
  }
  if (request.max_tokens == 0) {
    return;
  }
  const int64_t name = next_name_++;
  loop_.enter({.name = name,
               .ids = prompt,
               .tokens = std::min(request.max_tokens, limit_of(*job, choice)),
               .draw = {.sampling = request.sampling,
                        .stream = static_cast<int64_t>(choice),
                        .scored = request.logprobs.has_value()}});
  running_.emplace(name, std::move(running));
  const std::scoped_lock lock(mutex_);
  ++rows_in_use_;
}

void Scheduler::step() {
  if (loop_.has_pieces()) {
    if (const std::optional<SequenceToken> first = loop_.start_piece(kPieceTokens)) {
      take(*first);
    }
  }
  for (const SequenceToken& token : loop_.next()) {
    take(token);
  }
}

void Scheduler::take(const SequenceToken& token) {
  const auto& [sequence, choice] = token;
  Running& running = running_.at(sequence);
  const std::shared_ptr<Job> held = running.job;
  Job& job = *held;
  if (choice.id < 0 || choice.id >= tokenizer_.size()) {
    job.fail(choice.id < 0 ? "the model gave a NaN logit" : "the model gave an unknown token");
    return end(sequence);
  }
  const auto now = Job::Clock::now();
  if (running.tokens == 0) {
    metrics_.count_first_token(seconds_between(job.created, now));
  } else {
    metrics_.count_token(seconds_between(running.last, now));
  }
  running.last = now;
  const bool is_end = std::ranges::find(end_tokens_, choice.id) != end_tokens_.end();
  Piece piece{.choice = running.choice};
  if (!is_end) {
    piece.text = running.text.push(tokenizer_.bytes(choice.id));
    piece.tokens.push_back(choice);
  }
  piece.finish_reason = finish_after(++running.tokens, is_end, !running.text.stopped(),
                                     job.request.max_tokens, limit_of(job, running.choice));
  if (piece.finish_reason) {
    piece.text += running.text.finish();
    end(sequence);  // before the client hears of it
  }
  job.push(std::move(piece));
}

void Scheduler::end(int64_t sequence) {
  loop_.stop(sequence);
  running_.erase(sequence);
  const std::scoped_lock lock(mutex_);
  --rows_in_use_;
}

void Scheduler::fail_all(const std::string& message) {
  std::ranges::for_each(running_, [&](auto& each) { each.second.job->fail(message); });
  const std::scoped_lock lock(mutex_);
  failed_ = true;
  std::ranges::for_each(waiting_, [&](const Waiting& each) { each.job->fail(message); });
  waiting_.clear();
}

}  // namespace warpfuse::host
