#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <string>

#include "facts.h"

namespace warpfuse::rewriting {

// What fused_logprob replaces: the log-probability of a target per row of logits [.., V].
struct Logprob {
  torch::jit::Node* last = nullptr;  // gather, nll_loss_nd or cross_entropy_loss
  torch::jit::Value* logits = nullptr;
  torch::jit::Value* targets = nullptr;  // [.., 1] of a gather, [N] of a loss
  int64_t ignore_index = 0;
  int64_t reduction = 0;                // of a loss
  c10::ScalarType dtype = c10::kFloat;  // of the result
};

// `user` reads log_softmax(logits) over the last dimension, and is a gather of one column or a
// negative log-likelihood. Nothing for others; where one is not proved to be it, with the reason.
std::optional<Logprob> logprob_of(torch::jit::Value* logits, torch::jit::Node* user, Facts& facts,
                                  std::string& note);
std::optional<Logprob> cross_entropy(torch::jit::Node* loss, Facts& facts, std::string& note);

// The result in the place of that of `last`.
torch::jit::Value* emit_logprob(torch::jit::Graph& graph, const Logprob& logprob);

}  // namespace warpfuse::rewriting
