#include "runtime/decode/generation.h"

#include <numeric>

#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host {
namespace {

class Generation {
 public:
  Generation(DecodeLoop& loop, const std::vector<std::vector<int64_t>>& prompts, int64_t context,
             GenerationOptions options, TokenSink& sink)
      : loop_(loop),
        prompts_(prompts),
        context_(context),
        options_(std::move(options)),
        sink_(sink),
        waiting_(prompts.size()) {
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
    const auto start_time = std::chrono::steady_clock::now();
    do {
      while (!waiting_.empty() && loop_.free_rows() > 0 && !interrupted()) {
        start();
      }
      for (const SequenceToken& token : loop_.next()) {
        ++totals_.decoded_tokens;
        take(token);
      }
    } while (!is_done() && !interrupted());
    if (!is_done()) {
      totals_.interrupted = true;
      end_all(FinishReason::interrupted);
    }
    loop_.discard_unread();
    totals_.decode_seconds = seconds_since(start_time) - totals_.prefill_seconds;
    return totals_;
  }

  bool is_done() const { return waiting_.empty() && running_.empty(); }

  // Tokens that a prompt may get: the last one needs no room in the caches.
  int64_t limit_of(size_t prompt) const {
    const auto length = static_cast<int64_t>(prompts_[prompt].size());
    return std::min(options_.max_tokens, context_ - length + 1);
  }

  // Waiting prompts of one length go into free rows together.
  void start() {
    const size_t length = prompts_[waiting_.front()].size();
    const auto free = static_cast<size_t>(loop_.free_rows());
    std::vector<Sequence> sequences;
    while (sequences.size() < free && !waiting_.empty() &&
           prompts_[waiting_.front()].size() == length) {
      const size_t prompt = waiting_.front();
      waiting_.pop_front();
      running_.emplace(prompt, 0);
      sequences.push_back({.name = static_cast<int64_t>(prompt),
                           .ids = prompts_[prompt],
                           .tokens = limit_of(prompt)});
      totals_.prompt_tokens += static_cast<int64_t>(length);
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<SequenceToken> first = loop_.start(sequences);
    totals_.prefill_seconds += seconds_since(begin);
    std::ranges::for_each(first, [this](const SequenceToken& token) { take(token); });
  }

  void take(const SequenceToken& token) {
    const Choice& choice = token.choice;
    const auto prompt = static_cast<size_t>(token.sequence);
    int64_t& tokens = running_.at(prompt);
    if (choice.id < 0) {
      fail(ExitCode::model, "the model gave a NaN logit at token {} of prompt {}", tokens, prompt);
    }
    const bool is_end =
        std::ranges::find(options_.end_tokens, choice.id) != options_.end_tokens.end();
    ++tokens;
    const bool goes_on = sink_.on_token(prompt, choice, is_end);
    if (const std::optional<FinishReason> reason =
            finish_after(tokens, is_end, goes_on, options_.max_tokens, limit_of(prompt))) {
      finish(prompt, *reason);
    }
  }

  void finish(size_t prompt, FinishReason reason) {
    totals_.full_contexts += reason == FinishReason::context ? 1 : 0;
    loop_.stop(static_cast<int64_t>(prompt));
    running_.erase(prompt);
    sink_.on_finish(prompt, reason);
  }

  void end_all(FinishReason reason) {
    while (!running_.empty()) {
      finish(running_.begin()->first, reason);
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
  std::deque<size_t> waiting_;         // prompts, longest first
  std::map<size_t, int64_t> running_;  // prompts, and their tokens so far
  GenerationTotals totals_;
};

}  // namespace

std::string_view name_of(FinishReason reason) {
  constexpr std::array kNames{"length",  "end_of_text", "stop_text",
                              "context", "interrupted", "error"};
  return kNames.at(static_cast<size_t>(reason));
}

std::optional<FinishReason> finish_after(int64_t tokens, bool is_end, bool text_goes_on,
                                         int64_t max_tokens, int64_t limit) {
  if (is_end) {
    return FinishReason::end_of_text;
  }
  if (!text_goes_on) {
    return FinishReason::stop_text;
  }
  if (tokens == max_tokens) {
    return FinishReason::length;
  }
  return tokens == limit ? std::optional(FinishReason::context) : std::nullopt;
}

bool is_complete(FinishReason reason) {
  return reason != FinishReason::interrupted && reason != FinishReason::error;
}

std::vector<int64_t> end_tokens_of(const LanguageModelSpec& spec, const Tokenizer& tokenizer) {
  if (spec.end_tokens) {
    return *spec.end_tokens;
  }
  return tokenizer.end_of_text() ? std::vector{*tokenizer.end_of_text()} : std::vector<int64_t>();
}

GenerationTotals generate(DecodeLoop& loop, const std::vector<std::vector<int64_t>>& prompts,
                          int64_t context, const GenerationOptions& options, TokenSink& sink) {
  return Generation(loop, prompts, context, options, sink).run();
}

}  // namespace warpfuse::host
