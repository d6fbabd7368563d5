#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "core/kernel.h"

namespace warpfuse {

/// A tensor [B, H, T, D] whose last dimension is dense; strides in elements.
template <typename Pointer>
struct HeadRows {
  Pointer data;
  int64_t batch_stride, head_stride, row_stride;

  int64_t offset(int64_t batch, int64_t head, int64_t row) const {
    return batch * batch_stride + head * head_stride + row * row_stride;
  }
};

/// Positions [B, T], int64 or int32.
struct Positions {
  const void* data;
  bool is_int64;
  int64_t batch_stride, token_stride;
};

/// On the host.
inline int64_t position_of(const Positions& positions, int64_t batch, int64_t token) {
  const int64_t i = batch * positions.batch_stride + token * positions.token_stride;
  return positions.is_int64 ? static_cast<const int64_t*>(positions.data)[i]
                            : static_cast<const int32_t*>(positions.data)[i];
}

/// Writes the keys and values of T tokens into a cache, and attends to the slots up to each token's
/// position. float32, float16 or bfloat16.
struct CachedAttentionArguments {
  HeadRows<const void*> query;       // [B, H, T, D]
  HeadRows<const void*> key, value;  // [B, Hkv, T, D]
  HeadRows<void*> keys, values;      // of the cache: [B, Hkv, S, D]
  Positions positions;
  void* output;  // [B, T, H, D], contiguous
  DType dtype;
  int64_t batch, heads, key_heads, tokens, slots, head_dim;
  float scale;
  int64_t window;  // 0: none
};

/// Elements of a head that kernels take at most: 32 packs of 16 bytes.
constexpr int64_t max_head_dim(DType dtype) { return 32 * 16 / element_bytes(dtype); }

// Queries [begin, end) of B * H * T.
WARPFUSE_DECLARE_CPU_KERNEL(cached_attention_cpu, CachedAttentionArguments)

void launch_cpu(const CachedAttentionArguments& arguments);
cudaError_t launch_cuda(const CachedAttentionArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

}  // namespace warpfuse
