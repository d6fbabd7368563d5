#pragma once

#include "runtime/decode/decode_loop.h"
#include "runtime/text/tokenizer.h"

namespace warpfuse::host {

struct GenerationOptions {
  int64_t max_tokens;               // of one prompt
  std::vector<int64_t> end_tokens;  // each ends a sequence
};

// error: the model or the GPU failed, here or in another row.
enum class FinishReason { length, end_of_text, stop_text, context, interrupted, error };

// As in JSON.
std::string_view name_of(FinishReason reason);
// Whether the sequence came to an end of its own.
bool is_complete(FinishReason reason);

// Why a sequence ends after its latest token, if it does; `tokens` so far, of at most `limit` in
// the context.
std::optional<FinishReason> finish_after(int64_t tokens, bool is_end, bool text_goes_on,
                                         int64_t max_tokens, int64_t limit);

// Receives the tokens of generate(), prompt by prompt in the order in which they come.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // `is_end`: an end token, the last of this prompt. False: the text of this prompt has ended.
  virtual bool on_token(size_t prompt, const Choice& choice, bool is_end) = 0;
  virtual void on_finish(size_t prompt, FinishReason reason) = 0;
};

struct GenerationTotals {
  int64_t prompt_tokens = 0;
  int64_t decoded_tokens = 0;  // by steps after the prompts
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t full_contexts = 0;  // prompts that ended because of it
  bool interrupted = false;
};

// The end tokens of the bundle, else the tokenizer's <|endoftext|>.
std::vector<int64_t> end_tokens_of(const LanguageModelSpec& spec, const Tokenizer& tokenizer);

// Continues every prompt, as many at a time as `loop` has rows, the longest first: a row that ends
// makes room for the next. Ctrl-C, where an InterruptGuard lives, ends what is running and what was
// to come. Throws Error(model) when the model gives NaN, once all prompts were finished with
// FinishReason::error. Prompts must fit the context.
GenerationTotals generate(DecodeLoop& loop, const std::vector<std::vector<int64_t>>& prompts,
                          int64_t context, const GenerationOptions& options, TokenSink& sink);

}  // namespace warpfuse::host
