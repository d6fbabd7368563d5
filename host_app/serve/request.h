#pragma once

#include "runtime/decode/language_model.h"
#include "runtime/decode/sampling.h"
#include "runtime/text/tokenizer.h"

namespace warpfuse::host {

// The body of POST /v1/completions.
struct CompletionRequest {
  std::vector<std::vector<int64_t>> prompts;
  int64_t max_tokens = 16;
  int64_t n = 1;  // choices per prompt
  Sampling sampling{.temperature = 1.0};
  int64_t first_stream = 0;  // the random stream of choice 0; the others' follow
  std::vector<std::string> stop_texts;
  std::optional<int64_t> logprobs;  // score the tokens, and so many of the most probable
  bool echo = false;
  bool stream = false;
  bool include_usage = false;  // in a stream

  size_t choices() const { return prompts.size() * static_cast<size_t>(n); }
  const std::vector<int64_t>& prompt_of(size_t choice) const {
    return prompts[choice / static_cast<size_t>(n)];
  }
  int64_t prompt_tokens() const;
};

inline constexpr int64_t kMaxServedLogprobs = 5;
inline constexpr int64_t kMaxChoices = 128;

// Throws ApiError, which names the parameter, for whatever is not served.
CompletionRequest parse_completion(std::string_view body, const std::string& model_name,
                                   const LanguageModelSpec& spec, const Tokenizer& tokenizer);

}  // namespace warpfuse::host
