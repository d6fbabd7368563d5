#include "cached_attention_softmax/cached_attention_softmax.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "core/operator.h"

namespace warpfuse {
namespace {

constexpr const char* kOp = "cached_attention_softmax";

/// Kernels on a GPU count slots in 32 bits, some ahead of those that there are.
constexpr int64_t kMaxGpuSlots = INT32_MAX - 1024;

struct Inputs {
  const at::Tensor& query;      // [B, H, T, D]
  const at::Tensor& key;        // [B, Hkv, T, D]
  const at::Tensor& value;      // [B, Hkv, T, D]
  const at::Tensor& cache;      // [L, 2, B, Hkv, S, D]
  const at::Tensor& positions;  // [B, T]
  int64_t layer, window;
};

void check_sizes(const char* argument, const at::Tensor& tensor, c10::SymIntArrayRef expected,
                 const char* names) {
  WARPFUSE_CHECK(tensor.sym_sizes() == expected, kOp, argument, c10::str(names, " = ", expected),
                 tensor.sym_sizes());
}

/// Reads no data.
void check(const Inputs& inputs) {
  const auto& [query, key, value, cache, positions, layer, window] = inputs;
  check_floating(kOp, "query", query);
  WARPFUSE_CHECK(query.scalar_type() != at::kDouble, kOp, "query", "float32, float16 or bfloat16",
                 query.scalar_type());
  WARPFUSE_CHECK(query.dim() == 4, kOp, "query", "[B, H, T, D]", query.sym_sizes());
  check_same_type(kOp, "key", key, query);
  check_same_type(kOp, "value", value, query);
  check_same_type(kOp, "cache", cache, query);
  WARPFUSE_CHECK(key.dim() == 4, kOp, "key", "[B, Hkv, T, D]", key.sym_sizes());
  WARPFUSE_CHECK(cache.dim() == 6, kOp, "cache", "[L, 2, B, Hkv, S, D]", cache.sym_sizes());
  const c10::SymInt batch = query.sym_size(0), key_heads = key.sym_size(1),
                    tokens = query.sym_size(2), head_dim = query.sym_size(3);
  check_sizes("key", key, {batch, key_heads, tokens, head_dim}, "[B, Hkv, T, D]");
  check_sizes("value", value, {batch, key_heads, tokens, head_dim}, "[B, Hkv, T, D]");
  check_sizes("cache", cache, {cache.sym_size(0), 2, batch, key_heads, cache.sym_size(4), head_dim},
              "[L, 2, B, Hkv, S, D]");
  WARPFUSE_CHECK(key_heads > 0 && query.sym_size(1) % key_heads == 0, kOp, "query",
                 c10::str("a multiple of the key's ", key_heads, " heads"), query.sym_size(1));
  WARPFUSE_CHECK(layer >= 0 && layer < cache.sym_size(0), kOp, "layer",
                 c10::str("0 to ", cache.sym_size(0) - 1), layer);
  check_integers(kOp, "positions", positions);
  check_sizes("positions", positions, {batch, tokens}, "[B, T]");
  check_same_device(kOp, "positions", positions, query);
  WARPFUSE_CHECK(window >= 0, kOp, "window", "0 or a positive number of tokens", window);
  const int64_t max = max_head_dim(to_dtype(query.scalar_type()));
  WARPFUSE_CHECK(head_dim <= max, kOp, "query", c10::str("heads of at most ", max, " elements"),
                 head_dim);
}

at::Tensor with_dense_heads(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) == 1 ? tensor : tensor.contiguous();
}

HeadRows<const void*> head_rows(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

HeadRows<void*> cache_rows(const at::Tensor& cache, int64_t layer, int64_t of_two) {
  const at::Tensor rows = cache.select(0, layer).select(0, of_two);
  return {rows.mutable_data_ptr(), rows.stride(0), rows.stride(1), rows.stride(2)};
}

Positions positions_of(const at::Tensor& positions) {
  return {positions.const_data_ptr(), positions.scalar_type() == at::kLong, positions.stride(0),
          positions.stride(1)};
}

/// Reads positions, on the CPU.
void check_positions(const at::Tensor& positions, int64_t slots) {
  const Positions rows = positions_of(positions);
  for (int64_t batch = 0; batch < positions.size(0); ++batch) {
    for (int64_t token = 0; token < positions.size(1); ++token) {
      const int64_t position = position_of(rows, batch, token);
      WARPFUSE_CHECK(position < slots, kOp, "positions",
                     c10::str("positions below the cache's ", slots, " slots"), position);
    }
  }
}

struct CachedAttentionSoftmax {
  static constexpr const char* kName = kOp;

  template <typename Backend>
  static at::Tensor run(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        at::Tensor& cache, int64_t layer, const at::Tensor& positions, double scale,
                        int64_t window) {
    const Inputs inputs{query, key, value, cache, positions, layer, window};
    check(inputs);
    // In memory [B, T, H, D], so that the heads of a token are one row for the layer behind.
    at::Tensor output =
        Backend::empty({query.sym_size(0), query.sym_size(2), query.sym_size(1), query.sym_size(3)},
                       query.options());
    if (Backend::computes(output)) {
      check_dense_rows(kOp, "cache", cache);
      if constexpr (Backend::kKey == c10::DispatchKey::CUDA) {
        WARPFUSE_CHECK(cache.size(4) <= kMaxGpuSlots, kOp, "cache",
                       c10::str("at most ", kMaxGpuSlots, " slots on a GPU"), cache.size(4));
      }
      check_writable(kOp, "cache", cache);
      if constexpr (Backend::kKey == c10::DispatchKey::CPU) {
        check_positions(positions, cache.size(4));
      }
      begin_writing(cache);
      const at::Tensor q = with_dense_heads(query), k = with_dense_heads(key),
                       v = with_dense_heads(value);
      Backend::launch(output, CachedAttentionArguments{.query = head_rows(q),
                                                       .key = head_rows(k),
                                                       .value = head_rows(v),
                                                       .keys = cache_rows(cache, layer, 0),
                                                       .values = cache_rows(cache, layer, 1),
                                                       .positions = positions_of(positions),
                                                       .output = output.mutable_data_ptr(),
                                                       .dtype = to_dtype(query.scalar_type()),
                                                       .batch = query.size(0),
                                                       .heads = query.size(1),
                                                       .key_heads = key.size(1),
                                                       .tokens = query.size(2),
                                                       .slots = cache.size(4),
                                                       .head_dim = query.size(3),
                                                       .scale = static_cast<float>(scale),
                                                       .window = window});
    }
    return output.transpose(1, 2);
  }
};

WARPFUSE_OPERATORS(m) { register_operator<CachedAttentionSoftmax>(m); }

// --- CPU --------------------------------------------------------------------------------------

void write_cache(const CachedAttentionArguments& a) {
  const int64_t bytes = element_bytes(a.dtype);
  const auto copy = [&](const HeadRows<void*>& to, int64_t slot, const HeadRows<const void*>& from,
                        int64_t batch, int64_t head, int64_t token) {
    std::memcpy(static_cast<char*>(to.data) + to.offset(batch, head, slot) * bytes,
                static_cast<const char*>(from.data) + from.offset(batch, head, token) * bytes,
                a.head_dim * bytes);
  };
  for (int64_t batch = 0; batch < a.batch; ++batch) {
    for (int64_t token = 0; token < a.tokens; ++token) {
      const int64_t position = position_of(a.positions, batch, token);
      for (int64_t head = 0; position >= 0 && head < a.key_heads; ++head) {
        copy(a.keys, position, a.key, batch, head, token);
        copy(a.values, position, a.value, batch, head, token);
      }
    }
  }
}

}  // namespace

void launch_cpu(const CachedAttentionArguments& a) {
  write_cache(a);
  parallel_uneven_rows(a.batch * a.heads * a.tokens, a.slots * a.head_dim,
                       [&](int64_t begin, int64_t end) { cached_attention_cpu(a, begin, end); });
}

}  // namespace warpfuse
