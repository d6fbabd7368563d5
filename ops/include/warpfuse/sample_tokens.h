#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <cstdint>
#include <optional>

namespace warpfuse {

/// One token per row, drawn from softmax(logits / temperature) over the last dimension, filtered as
/// in Hugging Face's generate() and in its order: temperature, top_k, top_p, min_p. Nothing is
/// read on the host, so a decode loop can be a CUDA graph.
///
/// logits       [.., V]: float64, float32, float16 or bfloat16; V at most 2^20. They are read in
///              place if V is dense and the leading dimensions have one stride, else copied
/// step         int64 or int32 on the logits' device: one element, or one per row. It names the
///              random numbers of this call: a loop adds 1 to it for each token
/// seed         any; the same seed, step and row name draw the same token from equal logits
/// temperature  not negative, finite; 0 is greedy: the largest logit, the lowest id among equals,
///              whatever the following arguments are
/// top_k        not negative; keeps the tokens that are not below the k-th largest, including its
///              ties. 0: all
/// top_p        in (0, 1]; drops the smallest of the tokens that top_k left, as long as the dropped
///              probabilities sum to at most 1 - top_p; the largest stays. Among equals, the
///              highest ids are dropped first. 1: all stay
/// min_p        in [0, 1]; drops tokens whose probability is below min_p times the largest. 0: none
/// rows         int64, one per row, on the logits' device: the row's name in the random numbers, so
///              a sequence draws the same tokens in any slot of the batch. None: the row's index
///
/// Returns [..], int64, contiguous: ids in [0, V), or -1 for a row that contains NaN or only -inf.
/// Tokens of -inf are never drawn; if there are tokens of +inf, one of these is drawn, with equal
/// probability. It has no gradient.
///
/// Equal logits give equal tokens: on the CPU and on every GPU, alone or in a batch, wherever they
/// are in memory. docs/operators/sampling.md explains how.
///
/// Throws c10::Error for another dtype, shape or device, and for numbers outside the ranges above.
inline at::Tensor sample_tokens(const at::Tensor& logits, const at::Tensor& step, int64_t seed = 0,
                                double temperature = 1.0, int64_t top_k = 0, double top_p = 1.0,
                                double min_p = 0.0,
                                const std::optional<at::Tensor>& rows = std::nullopt) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, double,
                                       int64_t, double, double, const std::optional<at::Tensor>&)>(
          "warpfuse::sample_tokens");
  return op.call(logits, step, seed, temperature, top_k, top_p, min_p, rows);
}

}  // namespace warpfuse
