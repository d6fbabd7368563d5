#pragma once

#include "bench/suites/inputs.h"

namespace warpfuse::host::bench {

// What the plugin's forward leaves for its backward.
struct LogprobSaved {
  at::Tensor statistics;  // [.., 2]
  at::Tensor entropy;     // of the form "entropy"
};

// The inputs of a form of fused_logprob: "logprob", "lse" or "entropy".
struct LogprobSet {
  std::string_view form;
  at::Tensor logits, targets;
  at::Tensor grad_output;                  // of the result, backward and both; for ATen:
  at::Tensor grad_rounded;                 // in the logits' dtype
  at::Tensor grad_negated;                 // of the loss, which is -log p
  at::Tensor total_weight;                 // [], which nll_loss's backward asks for
  at::Tensor grad_second, second_rounded;  // the same of lse or entropy
  // What a forward leaves for the backward alone: the plugin's, and ATen's log_softmax.
  LogprobSaved saved;
  at::Tensor log_probs;
};

Sets<LogprobSet> make_logprob_inputs(const Case& c, const Setup& setup, std::string_view form);

}  // namespace warpfuse::host::bench
