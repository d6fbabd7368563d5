#include "commands/generate_output.h"

#include "runtime/output.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMilliseconds = 1e3;

Json json_of(const Choice& choice) {
  Json result{{"id", choice.id}, {"logprob", choice.logprob}};
  Json& top_logprobs = result["top_logprobs"] = Json::array();
  for (const ScoredToken& token : choice.top_logprobs) {
    top_logprobs.push_back({{"id", token.id}, {"logprob", token.logprob}});
  }
  return result;
}

}  // namespace

GenerationOutput::GenerationOutput(const Tokenizer& tokenizer, const std::vector<Prompt>& prompts,
                                   const std::vector<std::vector<int64_t>>& ids,
                                   const OutputOptions& options, bool with_logprobs)
    : tokenizer_(tokenizer),
      prompts_(prompts),
      ids_(ids),
      options_(options),
      with_logprobs_(with_logprobs) {
  for (const Prompt& prompt : prompts) {
    continuations_.push_back({.text = TextOutput(options.stop_texts), .shown = {}, .choices = {}});
    if (options.show_prompt && !options.json) {
      // The continuation may complete the last code point of the prompt.
      continuations_.back().shown = continuations_.back().text.show(prompt.text);
    }
  }
  print_ahead();
}

bool GenerationOutput::on_token(size_t prompt, const Choice& choice, bool is_end) {
  if (!is_end && !tokenizer_.has(choice.id)) {
    fail(ExitCode::model, "the model gave token {}, which its tokenizer of {} does not have",
         choice.id, tokenizer_.size());
  }
  Continuation& continuation = continuations_[prompt];
  if (continuation.choices.empty()) {
    continuation.first_token_seconds = seconds_since(start_);
  }
  continuation.choices.push_back(choice);
  if (!is_end) {
    continuation.shown += continuation.text.push(tokenizer_.bytes(choice.id));
    print_ahead();
  }
  return !continuation.text.stopped();
}

void GenerationOutput::on_finish(size_t prompt, FinishReason reason) {
  Continuation& continuation = continuations_[prompt];
  continuation.shown += continuation.text.finish();
  continuation.seconds = seconds_since(start_);
  continuation.reason = reason;
  continuation.finished = true;
  print_ahead();
}

void GenerationOutput::print_ahead() {
  for (; front_ < continuations_.size(); ++front_, printed_ = 0) {
    const Continuation& front = continuations_[front_];
    const bool never_began =
        front.finished && !is_complete(front.reason) && front.choices.empty() && printed_ == 0;
    if (never_began && !options_.json) {
      continue;
    }
    if (!options_.json) {
      write_output(std::string_view(front.shown).substr(printed_));
      printed_ = front.shown.size();
    }
    if (!front.finished) {
      break;
    }
    if (options_.json) {
      write_output(json_line(front_) + '\n');
    } else {
      write_output(front_ + 1 < continuations_.size() ? "\n---\n" : "\n");
    }
  }
  flush_output();
}

std::string GenerationOutput::json_line(size_t prompt) const {
  const Continuation& continuation = continuations_[prompt];
  Json ids = Json::array();
  Json logprobs = Json::array();
  for (const Choice& choice : continuation.choices) {
    ids.push_back(choice.id);
    if (with_logprobs_) {
      logprobs.push_back(json_of(choice));
    }
  }
  Json line{{"prompt", prompts_[prompt].text},
            {"text", continuation.shown},
            {"ids", std::move(ids)},
            {"finish_reason", name_of(continuation.reason)},
            {"complete", is_complete(continuation.reason)},
            {"prompt_tokens", ids_[prompt].size()},
            {"first_token_ms", continuation.first_token_seconds * kMilliseconds},
            {"total_ms", continuation.seconds * kMilliseconds}};
  if (with_logprobs_) {
    line["logprobs"] = std::move(logprobs);
  }
  if (const std::string& id = prompts_[prompt].id; !id.empty()) {
    line["id"] = Json::parse(id);
  }
  return dump(line);
}

}  // namespace warpfuse::host
