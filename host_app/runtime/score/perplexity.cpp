#include "runtime/score/perplexity.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <warpfuse/fused_logprob.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kUnscored = -100;

// The windows that the next call of the model takes: of one length, since they form one tensor.
std::span<const ScoringWindow> next_batch(std::span<const ScoringWindow> windows, int64_t most) {
  size_t count = 1;
  while (count < windows.size() && static_cast<int64_t>(count) < most &&
         windows[count].length == windows.front().length) {
    ++count;
  }
  return windows.first(count);
}

// Log-probabilities of targets [B, T] after the tokens [B, T], both on the CPU.
at::Tensor log_probs(const LanguageModel& model, const Cache& cache, const at::Tensor& tokens,
                     const at::Tensor& targets) {
  const at::Tensor ids = tokens.to(model.device());
  const at::Tensor logits =
      model.forward(ids, positions_of(ids), cache.rows(0, ids.size(0)).slots(ids.size(1)));
  return translating_errors(ExitCode::model, "fused_logprob", [&] {
    return fused_logprob(logits, targets.to(model.device()), kUnscored).to(at::kCPU, at::kDouble);
  });
}

struct Batch {
  at::Tensor tokens;   // i64[B, T]
  at::Tensor targets;  // i64[B, T], kUnscored where the window before has scored
};

Batch batch_of(const std::vector<int64_t>& ids, std::span<const ScoringWindow> windows) {
  const auto count = static_cast<int64_t>(windows.size());
  const int64_t length = windows.front().length;
  Batch batch{at::empty({count, length}, at::kLong), at::empty({count, length}, at::kLong)};
  auto* token = batch.tokens.mutable_data_ptr<int64_t>();
  auto* target = batch.targets.mutable_data_ptr<int64_t>();
  for (const ScoringWindow& window : windows) {
    const auto first = ids.begin() + window.begin;
    token = std::copy_n(first, length, token);
    target = std::fill_n(target, window.seen, kUnscored);
    target = std::copy_n(first + 1 + window.seen, window.scored(), target);
  }
  return batch;
}

}  // namespace

std::vector<ScoringWindow> scoring_windows(int64_t tokens, int64_t window, int64_t stride) {
  std::vector<ScoringWindow> windows;
  int64_t scored_to = 0;  // predictions below have been scored; there are tokens - 1 of them
  for (int64_t begin = 0; scored_to < tokens - 1; begin += stride) {
    const int64_t end = std::min(begin + window, tokens - 1);
    windows.push_back({.begin = begin, .length = end - begin, .seen = scored_to - begin});
    scored_to = end;
  }
  return windows;
}

double Score::perplexity() const { return std::exp(mean()); }

double Score::bits_per_byte(int64_t bytes) const {
  return negative_log_likelihood / std::numbers::ln2 / static_cast<double>(bytes);
}

double Score::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

Score score(const LanguageModel& model, const std::vector<int64_t>& ids,
            const ScoringOptions& options, const std::function<bool(const Score&)>& on_batch) {
  const c10::InferenceMode inference;
  const std::vector<ScoringWindow> windows =
      scoring_windows(static_cast<int64_t>(ids.size()), options.window, options.stride);
  std::span<const ScoringWindow> left = windows;
  const int64_t largest = std::min(options.batch, static_cast<int64_t>(windows.size()));
  const int64_t longest = windows.empty() ? 0 : windows.front().length;
  model.require_known(ids);
  const Cache cache = model.make_cache(largest, longest);
  Score score;
  const auto start = std::chrono::steady_clock::now();
  while (!left.empty()) {
    const std::span<const ScoringWindow> taken = next_batch(left, options.batch);
    left = left.subspan(taken.size());
    const Batch batch = batch_of(ids, taken);
    const auto log_likelihood =
        log_probs(model, cache, batch.tokens, batch.targets).sum().item<double>();
    if (std::isnan(log_likelihood)) {
      fail(ExitCode::model, "the model gave NaN in the window that starts at token {}",
           taken.front().begin);
    }
    for (const ScoringWindow& window : taken) {
      score.tokens += window.scored();
    }
    score.negative_log_likelihood -= log_likelihood;
    // The sum, which waits for the GPU, ends the batch.
    score.seconds = seconds_since(start);
    if (!on_batch(score)) {
      break;
    }
  }
  return score;
}

}  // namespace warpfuse::host
