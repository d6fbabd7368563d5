#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/decoder.h"
#include "runtime/sampler.h"

namespace warpfuse::host {

struct GenerationOptions {
  int64_t max_tokens;
  std::optional<int64_t> stop_token;
  SamplingOptions sampling;
};

enum class StopReason { max_tokens, stop_token, context_full };

struct GenerationResult {
  int64_t generated = 0;  // the stop token not counted
  int64_t decode_steps = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  StopReason stop = StopReason::max_tokens;
};

// Continues `prompt`, handing each new token to `on_token` as soon as it is known. Throws
// Error(model) when the model gives NaN.
GenerationResult generate(Decoder& decoder, const std::vector<int64_t>& prompt,
                          const GenerationOptions& options,
                          const std::function<void(int64_t)>& on_token);

}  // namespace warpfuse::host
