#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <vector>

#include "facts.h"
#include "logprob.h"
#include "writes.h"

namespace warpfuse::rewriting {

// The mask of a chain: a rule, or a tensor.
struct Mask {
  enum class Kind { none, causal, positions, boolean, additive };
  Kind kind = Kind::none;
  torch::jit::Value* tensor = nullptr;  // positions [B, T], or the mask
  bool tensor_is_hidden = false;        // boolean: true where a key is hidden, not visible
  std::optional<double> fill = {};      // boolean: what hidden scores become
  bool may_hide_rows = false;           // rows that are NaN in ATen
};

// A softmax and what was proved of the operators before it.
struct Chain {
  torch::jit::Node* softmax = nullptr;
  torch::jit::Value* input = nullptr;   // of the operator to emit
  torch::jit::Value* output = nullptr;  // that it replaces
  bool is_log = false;
  bool is_attention = false;           // scaled_masked_softmax, not softmax
  torch::jit::Node* linear = nullptr;  // linear_dropout_softmax: the one before
  std::optional<Logprob> logprob;      // fused_logprob
  double scale = 1;
  Mask mask;
  std::vector<std::string> form;  // operators, outermost last
  std::string note;
  bool is_left = false;  // to ATen; `note` says why
};

// Also cross_entropy_loss, which has one.
bool is_softmax(const torch::jit::Node* node);

// How many dimensions scores of scaled_masked_softmax have.
inline constexpr size_t kLeastRank = 2, kMostRank = 4;

Chain walk_up(torch::jit::Node* softmax, Facts& facts, const Writes& writes, bool keep_nan);

// Whether scores are a product of activations, scaled or with a learned bias: they hold no fill of
// an earlier mask, beside which hidden keys would count and the rounding of a scaled fill would
// show.
bool are_unmasked(const torch::jit::Value* scores, const Facts& facts);

// The mask that a node applies to `scores`, one of its inputs; none where it cannot be taken, with
// the reason in `note`.
struct AppliedMask {
  torch::jit::Value* scores = nullptr;
  Mask mask;
};
std::optional<AppliedMask> applied_mask(torch::jit::Node* node, Facts& facts, bool keep_nan,
                                        std::string& note);

}  // namespace warpfuse::rewriting
