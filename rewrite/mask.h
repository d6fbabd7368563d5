#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <vector>

#include "facts.h"

namespace warpfuse::rewriting {

// How many dimensions scores of scaled_masked_softmax have.
inline constexpr size_t kMinRank = 2, kMaxRank = 4;

// What hides the keys of a chain's scores: rules, and tensors.
struct Mask {
  enum class Kind { none, boolean, additive };
  struct Tensor {
    torch::jit::Value* value = nullptr;
    bool is_hidden = false;  // boolean: true where a key is hidden, not visible
  };

  bool is_causal = false;                  // upper left
  torch::jit::Value* positions = nullptr;  // [B, T]
  bool has_finite_rule = false;            // keys that a rule hides had a fill above -inf
  Kind kind = Kind::none;                  // of the tensors
  std::vector<Tensor> tensors = {};        // boolean: all let a key be; additive: their sum
  std::optional<double> fill = {};         // boolean: what hidden scores become
  bool may_broadcast = false;              // the tensors may make the scores larger
  bool may_hide_rows = false;              // rows that are NaN in ATen

  bool has_rule() const { return is_causal || positions != nullptr; }
  bool is_none() const { return !has_rule() && kind == Kind::none; }
};

// The mask that a node applies to `scores`, one of its inputs; none where it cannot be taken, with
// the reason in `note`.
struct AppliedMask {
  torch::jit::Value* scores = nullptr;
  Mask mask;
};
std::optional<AppliedMask> applied_mask(torch::jit::Node* node, Facts& facts, bool keep_nan,
                                        std::string& note, size_t max_rank = kMaxRank);

// Both masks as one, `inner` applied before `outer`; none where that is not equal, with the reason.
std::optional<Mask> combined(const Mask& inner, const Mask& outer, const Facts& facts,
                             bool keep_nan, std::string& note);

// Key index <= query index, or <= positions[batch, query].
struct Rule {
  bool is_causal = false;
  torch::jit::Value* positions = nullptr;
};
// That of a mask whose keys are visible where `visible` holds, if it has one.
std::optional<Rule> rule_of_mask(const ExpressionPtr& visible, const Sizes& mask,
                                 const Sizes& scores, Facts& facts);

// Whether the mask broadcasts to the scores, and does not make them larger.
bool fits(const Sizes& mask, const Sizes& scores, const torch::jit::Node* node, Facts& facts);

// Whether an operator takes scores of this dtype, as far as it is known; ATen makes floats of
// integers where a fill or a factor is one.
bool may_be_float(const Fact& scores);

// Whether a score with this fill has no weight beside one without.
bool hides_for_certain(double fill, c10::ScalarType dtype);

// Whether scores are a product of activations, scaled or with a learned bias: they hold no fill of
// an earlier mask, beside which hidden keys would count and the rounding of a scaled fill would
// show.
bool are_unmasked(const torch::jit::Value* scores, const Facts& facts);

}  // namespace warpfuse::rewriting
