// Every schema of the plugin: its table of contents.
//
// Saved models embed positional calls, so a schema is a promise: new arguments come at the end,
// with defaults (tests/schemas.golden). Names that start with _ are private. The public functions
// and their semantics are in ops/include/warpfuse/.

#include "common/registration.h"

namespace {

constexpr const char* kSchemas[] = {
    "softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    "log_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    "scaled_masked_softmax(Tensor scores, float scale=1.0, Tensor? attn_mask=None, "
    "str causal=\"none\", Tensor? query_positions=None, Tensor? key_lengths=None, int window=0, "
    "float? masked_value=None) -> Tensor",
    "fused_logprob(Tensor logits, Tensor targets, int ignore_index=-100, float temperature=1.0, "
    "bool check_targets=False) -> Tensor",
    "fused_logprob_lse(Tensor logits, Tensor targets, int ignore_index=-100, "
    "float temperature=1.0, bool check_targets=False, int vocab_start=0) -> "
    "(Tensor logprob, Tensor lse)",
    "fused_logprob_entropy(Tensor logits, Tensor targets, int ignore_index=-100, "
    "float temperature=1.0, bool check_targets=False) -> (Tensor logprob, Tensor entropy)",
    // Its random numbers are named by its arguments, so equal calls give equal tokens.
    "sample_tokens(Tensor logits, Tensor step, int seed=0, float temperature=1.0, int top_k=0, "
    "float top_p=1.0, float min_p=0.0, Tensor? rows=None) -> Tensor",
    "ms_deform_attn(Tensor value, Tensor spatial_shapes, Tensor level_start_index, "
    "Tensor sampling_locations, Tensor attention_weights, bool check_shapes=False) -> Tensor",
    "ms_deform_attn_softmax(Tensor value, Tensor spatial_shapes, Tensor level_start_index, "
    "Tensor sampling_locations, Tensor attention_logits, bool check_shapes=False) -> Tensor",
    // Decode steps: a norm before a linear layer, a residual connection behind it, attention that
    // writes its keys and values into the cache, and the largest logit of each row alone.
    "norm_linear(Tensor input, Tensor norm_weight, Tensor? norm_bias, Tensor weight, "
    "Tensor? bias=None, str norm=\"layer\", float eps=1e-5, str activation=\"none\") -> Tensor",
    "linear_residual(Tensor input, Tensor weight, Tensor? bias, Tensor residual) -> Tensor",
    "cached_attention_softmax(Tensor query, Tensor key, Tensor value, Tensor(a!) cache, int layer, "
    "Tensor positions, float scale=1.0, int window=0) -> Tensor",
    "linear_argmax(Tensor input, Tensor weight, Tensor? bias=None, Tensor? norm_weight=None, "
    "Tensor? norm_bias=None, str norm=\"layer\", float eps=1e-5) -> Tensor",
    // All of them: the greedy step of a whole GPT-2.
    "gpt2_step(Tensor ids, Tensor positions, Tensor(a!) cache, Tensor token_embedding, "
    "Tensor position_embedding, Tensor[] layers, Tensor norm_weight, Tensor norm_bias, "
    "Tensor head, float scale=1.0, float eps=1e-5, str activation=\"gelu_tanh\") -> Tensor",

    "_softmax_backward(Tensor grad_output, Tensor output, int dim) -> Tensor",
    "_log_softmax_backward(Tensor grad_output, Tensor output, int dim) -> Tensor",
    "_scaled_masked_softmax_backward(Tensor grad_output, Tensor output, float scale, "
    "Tensor? attn_mask, str causal, Tensor? query_positions, Tensor? key_lengths, int window, "
    "float? masked_value) -> Tensor",
    // One form by name ("logprob", "lse", "entropy"), with what its backward needs. lse and entropy
    // are empty in the forms that do not have them.
    "_fused_logprob(Tensor logits, Tensor targets, int ignore_index, float temperature, "
    "bool check_targets, int vocab_start, str form) -> "
    "(Tensor logprob, Tensor lse, Tensor entropy, Tensor statistics)",
    "_fused_logprob_backward(Tensor logits, Tensor targets, Tensor statistics, Tensor? entropy, "
    "Tensor? grad_logprob, Tensor? grad_lse, Tensor? grad_entropy, int ignore_index, "
    "float temperature, int vocab_start, str form) -> Tensor",
    // The same, written over the logits.
    "_fused_logprob_backward_(Tensor(a!) logits, Tensor targets, Tensor statistics, "
    "Tensor? entropy, Tensor? grad_logprob, Tensor? grad_lse, Tensor? grad_entropy, "
    "int ignore_index, float temperature, int vocab_start, str form) -> ()",

    // `output` is given where the weights are logits.
    "_ms_deform_attn_backward(Tensor grad_output, Tensor? output, Tensor value, "
    "Tensor spatial_shapes, Tensor level_start_index, Tensor sampling_locations, "
    "Tensor attention_weights) -> "
    "(Tensor grad_value, Tensor grad_sampling_locations, Tensor grad_attention_weights)",

    // One algorithm by name: naive, warp, block, cluster, stream (CUDA); naive, vector (CPU).
    "_softmax_algorithm(Tensor self, int dim, str algorithm, bool log=False) -> Tensor",

    // From the same random numbers as a forward; rng is [2], seed and offset, on the data's device.
    // `saved` is the output where dropout came first, else the input.
    "_dropout_softmax_backward(Tensor grad_output, Tensor saved, Tensor statistics, Tensor rng, "
    "int dim, float dropout_p, bool softmax_first) -> Tensor",
    "_scaled_masked_softmax_dropout_backward(Tensor grad_output, Tensor scores, "
    "Tensor statistics, Tensor rng, float scale, Tensor? attn_mask, str causal, "
    "Tensor? query_positions, Tensor? key_lengths, int window, float? masked_value, "
    "float dropout_p) -> Tensor",
    // Which elements a call with this rng keeps.
    "_dropout_mask(Tensor like, float dropout_p, Tensor rng) -> Tensor",
};

// They draw random numbers: no two calls are alike, and none may be baked into a model.
constexpr const char* kRandomSchemas[] = {
    "dropout_softmax(Tensor self, int dim, float dropout_p=0.5, bool training=True) -> Tensor",
    "softmax_dropout(Tensor self, int dim, float dropout_p=0.5, bool training=True) -> Tensor",
    "linear_dropout_softmax(Tensor input, Tensor weight, Tensor? bias=None, float dropout_p=0.5, "
    "bool training=True, bool allow_split_float32=False) -> Tensor",
    "scaled_masked_softmax_dropout(Tensor scores, float scale=1.0, Tensor? attn_mask=None, "
    "str causal=\"none\", Tensor? query_positions=None, Tensor? key_lengths=None, int window=0, "
    "float? masked_value=None, float dropout_p=0.0, bool training=False) -> Tensor",

    // The same with dropout always on, from the given random numbers if any. The rng that comes
    // back is the one used; row statistics are for the backward. The linear layer without dropout
    // and rng draws nothing, and its rng is empty.
    "_dropout_softmax(Tensor self, int dim, float dropout_p, bool softmax_first, "
    "Tensor? rng=None) -> (Tensor output, Tensor statistics, Tensor rng)",
    "_linear_dropout_softmax(Tensor input, Tensor weight, Tensor? bias, float dropout_p, "
    "Tensor? rng=None, bool allow_split_float32=False) -> (Tensor output, Tensor rng)",
    "_scaled_masked_softmax_dropout(Tensor scores, float scale, Tensor? attn_mask, str causal, "
    "Tensor? query_positions, Tensor? key_lengths, int window, float? masked_value, "
    "float dropout_p, Tensor? rng=None) -> (Tensor output, Tensor statistics, Tensor rng)",
};

// Freezing a module bakes the result of a call without tensor arguments into it, unless the call
// may have side effects.
constexpr const char* kStatefulSchemas[] = {
    "build_info() -> str",         "device_info() -> str",      "call_count(str name) -> int",
    "call_counts() -> str",        "reset_call_counts() -> ()", "tuning() -> str",
    "_set_tuning(str text) -> ()", "_launches() -> str",        "_record_launches(bool on) -> ()",
};

WARPFUSE_LIBRARY(m) {
  for (const char* schema : kSchemas) {
    m.def(schema, {at::Tag::pt2_compliant_tag});
  }
  for (const char* schema : kRandomSchemas) {
    m.def(torch::schema(schema, c10::AliasAnalysisKind::CONSERVATIVE),
          {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  }
  for (const char* schema : kStatefulSchemas) {
    m.def(torch::schema(schema, c10::AliasAnalysisKind::CONSERVATIVE));
  }
}

}  // namespace
