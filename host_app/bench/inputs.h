#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "bench/case.h"

namespace warpfuse::host::bench {

// The tensors of one call.
struct InputSet {
  at::Tensor scores;       // forward; fused_logprob: the logits, in the backward too
  at::Tensor output;       // backward: the forward's result (fused_logprob: ATen's, log_softmax),
  at::Tensor grad_output;  // and a random gradient of it

  // What the plugin's operator is given besides.
  std::optional<at::Tensor> attn_mask, query_positions, key_lengths;
  // What ATen's chain needs, and the reference: true = hidden, broadcasts to the scores; undefined
  // where no key is hidden.
  at::Tensor hidden;

  // fused_logprob, see logprob.h.
  at::Tensor targets;       // i64[..]
  at::Tensor statistics;    // [.., 2], backward: what the plugin's forward leaves for it (also
                            // softmax_dropout's)
  at::Tensor grad_rounded;  // [..], backward: grad_output in the logits' dtype, for ATen
  at::Tensor grad_negated;  // [..], and for ATen's loss, which is -log p
  at::Tensor total_weight;  // [], which nll_loss's backward asks for

  // Operators with dropout, see dropout.h and linear_dropout.h.
  at::Tensor keep;                 // bool[..], which elements are kept: of the backward, and of a
                                   // forward once it is known what that drew
  at::Tensor rng;                  // i64[2], backward: the random numbers behind `keep`
  at::Tensor input, weight, bias;  // linear: [rows, in], [out, in] and [out]
};

// `sets` inputs of the row, random and each in memory of its own; equal from run to run on one
// machine. Rules that hide by position are the same in all sets.
std::vector<InputSet> make_inputs(const Case& c, c10::Device device, int64_t sets);

}  // namespace warpfuse::host::bench
