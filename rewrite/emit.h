#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "chain.h"

namespace warpfuse::rewriting {

inline constexpr const char* kAttention = "warpfuse::scaled_masked_softmax";
inline constexpr const char* kSoftmax = "warpfuse::softmax";
inline constexpr const char* kLogSoftmax = "warpfuse::log_softmax";
inline constexpr const char* kLogprob = "warpfuse::fused_logprob";
inline constexpr const char* kLinear = "warpfuse::linear_dropout_softmax";

// Empty where it is left.
const char* emitted_operator(const Chain& chain);

// The operator in the place of the chain's output.
void emit(torch::jit::Graph& graph, const Chain& chain, Writes& writes);

}  // namespace warpfuse::rewriting
