#include "runtime/generation.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/errors.h"
#include "runtime/interrupt.h"

namespace warpfuse::host {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Generation {
 public:
  Generation(DecodeLoop& loop, const std::vector<std::vector<int64_t>>& prompts, int64_t context,
             GenerationOptions options, TokenSink& sink)
      : loop_(loop),
        prompts_(prompts),
        context_(context),
        options_(std::move(options)),
        sink_(sink),
        waiting_(prompts.size()),
        rows_(loop.rows()) {
    std::iota(waiting_.begin(), waiting_.end(), size_t{0});
    std::ranges::stable_sort(
        waiting_, [&](size_t a, size_t b) { return prompts_[a].size() > prompts_[b].size(); });
  }

  // Every prompt is finished, also when the model or the GPU fails.
  GenerationTotals run() {
    try {
      return run_to_the_end();
    } catch (...) {
      end_all(FinishReason::error);
      throw;
    }
  }

 private:
  GenerationTotals run_to_the_end() {
    const auto start = std::chrono::steady_clock::now();
    do {
      fill_rows();
      while (loop_.unread() < loop_.steps_ahead() && wants_step()) {
        launch();
      }
      if (loop_.unread() > 0) {
        read();
      }
    } while (!is_done() && !interrupted());
    if (!is_done()) {
      totals_.interrupted = true;
      end_all(FinishReason::interrupted);
    }
    while (loop_.unread() > 0) {
      loop_.read();
    }
    totals_.decode_seconds = seconds_since(start) - totals_.prefill_seconds;
    return totals_;
  }

  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  struct Row {
    size_t prompt = kNone;
    int64_t drawn = 0;    // tokens that were taken from it
    int64_t planned = 0;  // the same, with those of steps that were launched

    bool is_taken() const { return prompt != kNone; }
  };

  // Tokens that a prompt may get: the last one needs no room in the caches.
  int64_t limit_of(size_t prompt) const {
    const auto length = static_cast<int64_t>(prompts_[prompt].size());
    return std::min(options_.max_tokens, context_ - length + 1);
  }

  bool is_done() const { return waiting_.empty() && std::ranges::none_of(rows_, &Row::is_taken); }
  bool wants_step(const Row& row) const {
    return row.is_taken() && row.planned < limit_of(row.prompt);
  }
  bool wants_step() const {
    return std::ranges::any_of(rows_, [this](const Row& row) { return wants_step(row); });
  }

  void fill_rows() {
    while (!waiting_.empty() && !interrupted()) {
      const auto first = std::ranges::find_if_not(rows_, &Row::is_taken);
      if (first == rows_.end()) {
        return;
      }
      const auto end = std::ranges::find_if(first, rows_.end(), &Row::is_taken);
      start(first - rows_.begin(), end - first);
    }
  }

  // Waiting prompts of one length go into `free` neighbouring rows together.
  void start(size_t row, size_t free) {
    const size_t length = prompts_[waiting_.front()].size();
    std::vector<Sequence> sequences;
    std::vector<size_t> taken;
    while (taken.size() < free && !waiting_.empty() &&
           prompts_[waiting_.front()].size() == length) {
      const size_t prompt = waiting_.front();
      waiting_.pop_front();
      taken.push_back(prompt);
      sequences.push_back({.name = static_cast<int64_t>(prompt), .ids = prompts_[prompt]});
      totals_.prompt_tokens += static_cast<int64_t>(length);
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Choice> first = loop_.start(static_cast<int64_t>(row), sequences);
    totals_.prefill_seconds += seconds_since(begin);
    for (size_t i = 0; i < taken.size(); ++i) {
      rows_[row + i] = {.prompt = taken[i], .drawn = 0, .planned = 1};
      take(row + i, first[i]);
    }
  }

  void launch() {
    std::vector<size_t> owners(rows_.size(), kNone);
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (wants_step(rows_[row])) {
        owners[row] = rows_[row].prompt;
        ++rows_[row].planned;
      } else if (loop_.length(static_cast<int64_t>(row)) > 0) {
        loop_.stop(static_cast<int64_t>(row));
      }
    }
    loop_.launch();
    owners_.push_back(std::move(owners));
  }

  void read() {
    const std::vector<Choice> choices = loop_.read();
    const std::vector<size_t> owners = std::move(owners_.front());
    owners_.pop_front();
    for (size_t row = 0; row < rows_.size(); ++row) {
      // Else it belongs to a sequence that has ended since the step was launched.
      if (owners[row] != kNone && owners[row] == rows_[row].prompt) {
        ++totals_.decoded_tokens;
        take(row, choices[row]);
      }
    }
  }

  void take(size_t row, const Choice& choice) {
    const size_t prompt = rows_[row].prompt;
    if (choice.id < 0) {
      fail(ExitCode::model, "the model gave a NaN logit at token {} of prompt {}", rows_[row].drawn,
           prompt);
    }
    const bool is_end =
        std::ranges::find(options_.end_tokens, choice.id) != options_.end_tokens.end();
    ++rows_[row].drawn;
    const bool goes_on = sink_.on_token(prompt, choice, is_end);
    if (is_end) {
      finish(row, FinishReason::end_of_text);
    } else if (!goes_on) {
      finish(row, FinishReason::stop_text);
    } else if (rows_[row].drawn == options_.max_tokens) {
      finish(row, FinishReason::length);
    } else if (rows_[row].drawn == limit_of(prompt)) {
      finish(row, FinishReason::context);
    }
  }

  void finish(size_t row, FinishReason reason) {
    totals_.full_contexts += reason == FinishReason::context ? 1 : 0;
    sink_.on_finish(rows_[row].prompt, reason);
    rows_[row].prompt = kNone;
  }

  void end_all(FinishReason reason) {
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].is_taken()) {
        finish(row, reason);
      }
    }
    for (const size_t prompt : std::exchange(waiting_, {})) {
      sink_.on_finish(prompt, reason);
    }
  }

  DecodeLoop& loop_;
  const std::vector<std::vector<int64_t>>& prompts_;
  int64_t context_;
  GenerationOptions options_;
  TokenSink& sink_;
  std::deque<size_t> waiting_;  // prompts, longest first
  std::vector<Row> rows_;
  std::deque<std::vector<size_t>> owners_;  // of the rows of each unread step
  GenerationTotals totals_;
};

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::end_of_text:
      return "end_of_text";
    case FinishReason::stop_text:
      return "stop_text";
    case FinishReason::context:
      return "context";
    case FinishReason::error:
      return "error";
    default:
      return "interrupted";
  }
}

bool is_complete(FinishReason reason) {
  return reason != FinishReason::interrupted && reason != FinishReason::error;
}

GenerationTotals generate(DecodeLoop& loop, const std::vector<std::vector<int64_t>>& prompts,
                          int64_t context, const GenerationOptions& options, TokenSink& sink) {
  return Generation(loop, prompts, context, options, sink).run();
}

}  // namespace warpfuse::host
