#pragma once

#include "runtime/decode/generation.h"
#include "runtime/text/prompts.h"
#include "runtime/text/text_output.h"

namespace warpfuse::host {

struct OutputOptions {
  std::vector<std::string> stop_texts;
  bool show_prompt = true;
  bool json = false;
};

// Prints continuations in prompt order. As text, the first unfinished one streams, with a line of
// three dashes between two; as JSON, one line per finished prompt.
class GenerationOutput : public TokenSink {
 public:
  GenerationOutput(const Tokenizer& tokenizer, const std::vector<Prompt>& prompts,
                   const std::vector<std::vector<int64_t>>& ids, const OutputOptions& options,
                   bool with_logprobs);

  bool on_token(size_t prompt, const Choice& choice, bool is_end) override;
  void on_finish(size_t prompt, FinishReason reason) override;

 private:
  struct Continuation {
    TextOutput text;
    std::string shown;  // what came out of `text`
    std::vector<Choice> choices;
    double first_token_seconds = 0;
    double seconds = 0;
    bool finished = false;
    FinishReason reason = FinishReason::interrupted;
  };

  void print_ahead();
  std::string json_line(size_t prompt) const;

  const Tokenizer& tokenizer_;
  const std::vector<Prompt>& prompts_;
  const std::vector<std::vector<int64_t>>& ids_;
  OutputOptions options_;
  bool with_logprobs_;
  std::vector<Continuation> continuations_;
  size_t front_ = 0;    // the first prompt that is not printed to its end
  size_t printed_ = 0;  // bytes of its text that are
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace warpfuse::host
