#pragma once

#include "bench/suites/inputs.h"

namespace warpfuse::host::bench {

// The scores of a scaled_masked_softmax as [batch, heads, queries, keys].
struct Scores {
  int64_t batch, heads, queries, keys;
};
Scores scores_of(const Shape& shape);

// Mask::padding: one length for each batch entry, uniform in 1..keys. The same on every machine and
// in every run, so that rows of different files count the same bytes.
std::vector<int64_t> key_lengths_of(const Shape& shape);

// Mask::positions: those of the last queries of a sequence, keys - queries + i; the same for each
// batch entry. With one query that is a step of decoding that sees every key.
std::vector<int64_t> query_positions_of(const Shape& shape);

// A power of two, so that the chain's multiplication is exact.
inline constexpr double kAttentionScale = 0.125;
inline constexpr std::array kAttentionMasks{Mask::causal, Mask::padding, Mask::boolean,
                                            Mask::additive, Mask::positions};

// The inputs of attention's softmax; without dropout, scores are those of a forward alone.
struct AttentionSet : DropoutSet {
  std::optional<at::Tensor> attn_mask, query_positions, key_lengths;
  // For the chain and the reference: true = hidden, broadcasts to the scores; undefined where no
  // key is hidden.
  at::Tensor hidden;
};

inline constexpr std::string_view kAttentionShapes =
    "2 to 4 sizes, and no other dim than the last,";
bool is_attention(const Shape& shape);

const char* causal_of(const Case& c);

void add_attention_masks(std::vector<AttentionSet>& sets, const Case& c,
                         const at::TensorOptions& options);

// The forward of a part of the scores, in double precision.
at::Tensor attention_forward(const Case& c, const AttentionSet& set, const at::Tensor& scores,
                             const Part& part);

// ATen's chain.
at::Tensor chain_forward(const AttentionSet& in);
// Of a gradient of the softmax.
at::Tensor chain_backward(const AttentionSet& in, const at::Tensor& grad_output);

// Without dropout.
Bytes attention_bytes(const Case& c);

}  // namespace warpfuse::host::bench
