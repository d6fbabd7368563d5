#pragma once

#include "runtime/decode/language_model.h"

namespace warpfuse::host {

// The distance of a tensor from its reference. A row lies along the last dimension.
struct Difference {
  double largest = 0;   // |value - reference|; NaN when either holds a NaN
  double relative = 0;  // the same over the largest finite |reference| of its row, the worst row's

  // The worse of both, each for itself.
  void include(const Difference& other);
  // Never true for NaN.
  bool within(double tolerance) const { return relative <= tolerance; }
};

// In double precision. Equal infinities do not differ; tensors of unequal shape differ by infinity.
// A row's magnitude counts as at least the smallest normal number of the coarser dtype, below which
// that dtype has no digits left.
Difference difference_between(const at::Tensor& value, const at::Tensor& reference);

// The relative difference that two correct computations in this dtype may have.
double default_tolerance(c10::ScalarType dtype);

// Rows of logits that were compared: where both models pick the same token, and where they do not
// but the reference prefers its own by no more than the tolerance.
struct GreedyCount {
  int64_t rows = 0;
  int64_t equal = 0;
  int64_t ties = 0;

  bool agrees() const { return equal + ties == rows; }
};

// One step of the comparison, over all prompts that reached it, or one set of random inputs.
struct StepComparison {
  std::string name;
  Difference difference = {};
  GreedyCount greedy = {};  // no rows when the outputs are no logits
  // What the models said to inputs that they cannot take; empty: nothing.
  std::string error = {}, reference_error = {};

  bool both_raise() const { return !error.empty() && !reference_error.empty(); }
  bool passes(double tolerance) const {
    return both_raise() || (error.empty() && reference_error.empty() &&
                            difference.within(tolerance) && greedy.agrees());
  }
};

// Feeds both models the same tokens: each prompt, then the reference's greedy continuation. Steps
// are "prefill", "decode 1" .. "decode <steps - 1>" and "forward", which scores the whole sequence
// at once. Prompts must not be empty and fit both contexts. Throws Error(model) for an id that a
// model does not know.
std::vector<StepComparison> compare_language_models(
    const LanguageModel& model, const LanguageModel& reference,
    const std::vector<std::vector<int64_t>>& prompts, int64_t steps, double tolerance);

// The token with the largest logit of [V], the lowest id among equals; empty when one is NaN.
std::optional<int64_t> greedy_token(const at::Tensor& logits);

}  // namespace warpfuse::host
