#pragma once

#include <cstdint>

#include "bench/case.h"

namespace warpfuse::host::bench {

// Bytes that a row must move to and from memory, as a model; n elements of e bytes.
//
//   least, forward    (v + n) e + m    v: scores that a rule does not hide, read once; all written
//   least, backward   (2 v + n) e + m  output and its gradient read; all written
//   fused             the same: one pass, as the plugin's kernels are meant to work
//
// v is n less what is hidden by position (causal, padding, positions): a key hidden by a mask
// tensor lies among visible ones and is read with them. m is what describes the mask: 1 byte an
// element of a boolean mask tensor, e an element of an additive one (forward alone: the backward
// has no use for it), 8 a key length or query position, nothing for causal.
//
//   unfused, softmax and log_softmax: ATen's kernels
//     forward               2 n e
//     backward              6 n e for softmax (the product of gradient and output is a tensor),
//                           3 n e for log_softmax
//   unfused, scaled_masked_softmax: ATen's chain, one kernel a step, each over all elements
//     forward               mul 2 n e, masked_fill 2 n e + m' or add 2 n e + m, softmax 2 n e
//     backward              softmax's 6 n e, masked_fill 2 n e + m', mul 2 n e
//   dropout_softmax, softmax_dropout: dropout adds nothing to what is moved at least, but that
//     softmax_dropout's backward reads two numbers a row. Unfused it is a kernel more, 2 n e and a
//     mask of 1 byte an element, forward and backward.
//   fused_logprob: see logprob.h; linear_dropout_softmax: see linear_dropout.h
//   m' is 1 byte an element of the chain's boolean mask; without a mask its step falls away.
struct Traffic {
  int64_t least;
  int64_t fused;
  int64_t unfused;
};

Traffic traffic_of(const Case& c);

// Bytes of the input tensors of one call: what a rotation over inputs adds up.
int64_t input_bytes_of(const Case& c);
int64_t output_bytes_of(const Case& c);

}  // namespace warpfuse::host::bench
