#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <string_view>

namespace warpfuse {

/// The most probable next token of each sequence by GPT-2: embeddings, L layers, the last norm and
/// the head, for one new token per sequence. It writes the cache, and computes
///
///   x = token_embedding[ids] + position_embedding[positions]
///   per layer:  q, k, v = norm_linear(x, norm_1, qkv)
///               x = linear_residual(cached_attention_softmax(q, k, v, cache, ..), projection, x)
///               x = linear_residual(norm_linear(x, norm_2, inner, activation), outer, x)
///   next = linear_argmax(x, head, norm)
///
/// as those operators do, except for the order of sums.
///
/// ids, positions      [B, 1], int64
/// cache               [L, 2, B, H, S, D]: float32, float16 or bfloat16; the cache of
///                     cached_attention_softmax
/// token_embedding     [.., C] with C = H D; this and all following tensors have the cache's dtype
///                     and device
/// position_embedding  [.., C]
/// layers              12 tensors per layer: norm_1's weight and bias [C]; qkv's weight [3C, C] and
///                     bias [3C], whose outputs are [H, 3, D]; projection's [C, C] and [C];
///                     norm_2's [C]; inner's [I, C] and [I]; outer's [C, I] and [C]
/// norm_weight, norm_bias  [C]
/// head                [V, C]
/// scale               of attention, usually 1 / sqrt(D)
/// eps                 of the norms, not negative
/// activation          between inner and outer: "none", "gelu" or "gelu_tanh"
///
/// Returns [B], int64, as linear_argmax does. It has no gradient.
///
/// On Hopper and later, up to 4 sequences are one cooperative kernel that uses all
/// multiprocessors, if C is at most 768, I at most 3072, L at most 24 and D at most 128, all
/// tensors are contiguous and aligned to 16 bytes, and a head has a power of two of 16-byte packs.
/// Otherwise the operators above run one by one. In the one kernel, an id or a position outside its
/// table gives a row of zeros; otherwise it is at::embedding's error.
///
/// Throws c10::Error for another dtype, shape or device, eps or activation.
inline at::Tensor gpt2_step(const at::Tensor& ids, const at::Tensor& positions, at::Tensor& cache,
                            const at::Tensor& token_embedding, const at::Tensor& position_embedding,
                            at::TensorList layers, const at::Tensor& norm_weight,
                            const at::Tensor& norm_bias, const at::Tensor& head, double scale = 1.0,
                            double eps = 1e-5, std::string_view activation = "gelu_tanh") {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, at::Tensor&, const at::Tensor&, const at::Tensor&,
      at::TensorList, const at::Tensor&, const at::Tensor&, const at::Tensor&, double, double,
      c10::string_view)>("warpfuse::gpt2_step");
  return op.call(ids, positions, cache, token_embedding, position_embedding, layers, norm_weight,
                 norm_bias, head, scale, eps, activation);
}

}  // namespace warpfuse
