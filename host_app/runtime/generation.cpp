#include "runtime/generation.h"

#include <chrono>

namespace warpfuse::host {
namespace {

// Seconds of `action`. Copying the logits to the CPU, which ends each step, waits for the GPU.
template <typename Action>
double timed(Action&& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

GenerationResult generate(Decoder& decoder, const std::vector<int64_t>& prompt,
                          const GenerationOptions& options,
                          const std::function<void(int64_t)>& on_token) {
  GenerationResult result;
  Sampler sampler(options.sampling);
  std::vector<double> logits;
  result.prefill_seconds = timed([&] { logits = to_doubles(decoder.prefill(prompt)); });
  while (result.generated < options.max_tokens) {
    const int64_t token = sampler(logits);
    if (token == options.stop_token) {
      result.stop = StopReason::stop_token;
      break;
    }
    on_token(token);
    if (++result.generated == options.max_tokens) {
      break;
    }
    if (decoder.length() == decoder.context()) {
      result.stop = StopReason::context_full;
      break;
    }
    result.decode_seconds += timed([&] { logits = to_doubles(decoder.decode(token)); });
    ++result.decode_steps;
  }
  return result;
}

}  // namespace warpfuse::host
