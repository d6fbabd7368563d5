#pragma once

#include <ATen/core/Tensor.h>
#include <warpfuse/dispatch.h>

#include <cstdint>

namespace warpfuse {

/// Writes the keys and values of T tokens into a cache, and attends to it:
///
///   cache[layer, 0, b, :, positions[b, t]] = key[b, :, t]      (1: value)
///   output[b, h, t] = sum_j softmax_j(scale * query[b, h, t] . keys[b, g, j]) values[b, g, j]
///
/// The sum is over the slots j <= positions[b, t]; with a window w > 0, only those with
/// positions[b, t] - w < j. g = h / (H / Hkv). Slots that no query sees are never used, so NaN in
/// them does not matter. A query whose scores are all -inf gives zeros.
///
/// query      [B, H, T, D]: float32, float16 or bfloat16; D at most 128 (float32) or 256
/// key, value [B, Hkv, T, D], Hkv a divisor of H; query's dtype and device, as for the cache
/// cache      [L, 2, B, Hkv, S, D], written in place; any strides, but a dense last dimension.
///            It may be a part of a larger cache. It must not require a gradient, and the slots
///            that are written must not be memory of query, key or value
/// layer      0 to L - 1
/// positions  [B, T], int64 or int32, on the query's device; rows of the batch may differ. A
///            negative position writes nothing, sees nothing and gives zeros. Of several tokens at
///            a slot, the last one is written
/// scale      usually 1 / sqrt(D)
/// window     not negative; 0: none
///
/// Returns [B, H, T, D] with the memory layout [B, T, H, D], so the heads of a token are one row
/// for the next layer. It has no gradient: differentiating it is an error. Under autocast, query,
/// key and value take the cache's dtype, not autocast's.
///
/// On the CPU, a position past the cache is an error, before anything is written. A GPU reads
/// positions without the host: there such a token is not written, and sees all slots. In a chain of
/// operators in a captured CUDA graph, positions are read early: norm_linear.h says which kernels
/// may compute them.
///
/// Throws c10::Error for another dtype, shape or device, and for numbers outside the ranges above.
inline at::Tensor cached_attention_softmax(const at::Tensor& query, const at::Tensor& key,
                                           const at::Tensor& value, at::Tensor& cache,
                                           int64_t layer, const at::Tensor& positions,
                                           double scale = 1.0, int64_t window = 0) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       at::Tensor&, int64_t, const at::Tensor&, double, int64_t)>(
          "warpfuse::cached_attention_softmax");
  return op.call(query, key, value, cache, layer, positions, scale, window);
}

}  // namespace warpfuse
