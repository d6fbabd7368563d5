#pragma once

#include <functional>

#include "runtime/decode/language_model.h"

namespace warpfuse::host {

// A stretch of a text that the model sees at once: the tokens [begin, begin + length), each of
// which predicts the one after it. The first `seen` predictions belong to the window before.
struct ScoringWindow {
  int64_t begin;
  int64_t length;
  int64_t seen;

  int64_t scored() const { return length - seen; }
};

// The windows of a text, `stride` tokens apart, which score every token but the first exactly once,
// each with as much context as its window gives. All but the last are `window` long; the last ends
// before the text's last token. None for fewer than two tokens.
std::vector<ScoringWindow> scoring_windows(int64_t tokens, int64_t window, int64_t stride);

struct ScoringOptions {
  int64_t window;
  int64_t stride;
  int64_t batch;  // windows that the model sees in one call
};

struct Score {
  int64_t tokens = 0;
  double negative_log_likelihood = 0;  // in nats, of all tokens together
  double seconds = 0;

  double mean() const { return negative_log_likelihood / static_cast<double>(tokens); }
  double perplexity() const;
  double bits_per_byte(int64_t bytes) const;
  double tokens_per_second() const;
};

// Scores a text by the model's own "forward" and warpfuse::fused_logprob. `on_batch` sees the score
// so far after each call of the model; where it returns false, that score is the result. Throws
// Error(model) for an id that the model does not know, and a model that gives NaN.
Score score(const LanguageModel& model, const std::vector<int64_t>& ids,
            const ScoringOptions& options, const std::function<bool(const Score&)>& on_batch);

}  // namespace warpfuse::host
