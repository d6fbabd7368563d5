#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <cstdint>
#include <tuple>

namespace warpfuse {

/// log p(target) for p = softmax(logits / temperature) over the last dimension, without a tensor of
/// log-probabilities: (x[target] - max x) / temperature - log sum_k exp((x_k - max x) /
/// temperature), as at::log_softmax and at::gather give it, in one read of the logits.
///
/// logits         [.., V]: float64, float32, float16 or bfloat16. They are read in place if V is
///                dense and the leading dimensions have at most two strides, such as logits[:, :-1]
///                or V = 50257 columns of a head padded to 50304; otherwise they are copied
/// targets        [..], the shape of logits without V: int32 or int64, any strides
/// ignore_index   a target of this value gives 0 and no gradient; it is checked first
/// temperature    positive and finite
/// check_targets  on a GPU, a target outside [0, V) gives NaN in its row, forward and backward;
///                with this option it is an error, which waits for the stream. On the CPU it is
///                always an error
///
/// Returns [..] in nats, float32 (float64 for float64 logits), contiguous. -inf, +inf and NaN among
/// the logits give what log_softmax and gather give: a row that is all -inf, or contains +inf or
/// NaN, is NaN. A row's result depends on that row alone, bit by bit: not on other rows, alignment
/// or threads.
///
/// The gradient, d logits = grad * ((k == target) - p) / temperature, has the logits' dtype: one
/// read, one write, rounded once. It saves the logits themselves and 16 bytes per row. It has no
/// gradient of its own. Autocast leaves the logits as they are.
///
/// Throws c10::Error for another dtype, shape or device of targets, for V = 0, for a temperature
/// that is not positive and finite, and for a wrong target, with its position and value.
inline at::Tensor fused_logprob(const at::Tensor& logits, const at::Tensor& targets,
                                int64_t ignore_index = -100, double temperature = 1.0,
                                bool check_targets = false) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, int64_t, double, bool)>("warpfuse::fused_logprob");
  return op.call(logits, targets, ignore_index, temperature, check_targets);
}

/// fused_logprob and lse = log sum_k exp(x_k / temperature), as at::logsumexp. The logits may be a
/// shard of a vocabulary: its columns [vocab_start, vocab_start + V). Targets count over the whole
/// vocabulary. A target in another shard gives -inf, and no gradient through logprob; a negative
/// one is wrong in any shard.
///
/// Shards are merged by their lse: with lse = logsumexp of all shards' lse,
///     logprob = max over the shards of (logprob_s + lse_s - lse).
///
/// lse has a gradient, grad_lse * p / temperature. It belongs to the row, not to the target, so a
/// row with an ignored target also has its lse and that gradient: shards can be merged even if they
/// do not agree on ignored targets, and a penalty on lse may cover rows without a target. For a row
/// that is all -inf, lse is -inf and its gradient 0 (at::logsumexp's is NaN), so a shard that is
/// fully masked merges with others.
///
/// Returns (logprob, lse), both like fused_logprob's result.
inline std::tuple<at::Tensor, at::Tensor> fused_logprob_lse(
    const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index = -100,
    double temperature = 1.0, bool check_targets = false, int64_t vocab_start = 0) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, int64_t, double, bool, int64_t)>(
      "warpfuse::fused_logprob_lse");
  return op.call(logits, targets, ignore_index, temperature, check_targets, vocab_start);
}

/// fused_logprob and the entropy of the row, -sum_k p_k log p_k in nats, from the same read; a
/// probability of zero adds nothing. If the target is ignored, the entropy is 0 and has no
/// gradient; if logprob is NaN, so is the entropy. Its gradient is
/// -grad_entropy * p_k * (log p_k + entropy) / temperature.
///
/// Returns (logprob, entropy), both like fused_logprob's result.
inline std::tuple<at::Tensor, at::Tensor> fused_logprob_entropy(const at::Tensor& logits,
                                                                const at::Tensor& targets,
                                                                int64_t ignore_index = -100,
                                                                double temperature = 1.0,
                                                                bool check_targets = false) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, int64_t, double, bool)>(
      "warpfuse::fused_logprob_entropy");
  return op.call(logits, targets, ignore_index, temperature, check_targets);
}

}  // namespace warpfuse
