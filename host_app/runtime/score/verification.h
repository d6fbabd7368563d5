#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/decode/language_model.h"
#include "runtime/score/difference.h"

namespace warpfuse::host {

// Rows of logits that were compared: where both models pick the same token, and where they do not
// but the reference prefers its own by no more than the tolerance.
struct GreedyCount {
  int64_t rows = 0;
  int64_t equal = 0;
  int64_t ties = 0;

  bool agrees() const { return equal + ties == rows; }
};

// One step of the comparison, over all prompts or random inputs that reached it.
struct StepComparison {
  std::string name;
  Difference difference;
  GreedyCount greedy;  // no rows when the outputs are no logits
};

// Feeds both models the same tokens: each prompt, then the reference's greedy continuation. Steps
// are "prefill", "decode 1" .. "decode <steps - 1>" and "forward", which scores the whole sequence
// at once. Prompts must not be empty and fit both contexts. Throws Error(model) for an id that a
// model does not know.
std::vector<StepComparison> compare_language_models(
    const LanguageModel& model, const LanguageModel& reference,
    const std::vector<std::vector<int64_t>>& prompts, int64_t steps, double tolerance);

// Calls forward() of both on the same random inputs, new ones for each step, and from the same seed
// of libtorch's generators, for modules that use random numbers.
std::vector<StepComparison> compare_modules(torch::jit::Module& model,
                                            torch::jit::Module& reference,
                                            const std::vector<InputSpec>& inputs,
                                            c10::Device device, int64_t steps, uint64_t seed);

// The token with the largest logit of [V], the lowest id among equals; empty when one is NaN.
std::optional<int64_t> argmax(const std::vector<double>& logits);

}  // namespace warpfuse::host
