#pragma once

// cached_attention_softmax as tests call it, and what it should give and write, in float64.

#include <ATen/ATen.h>
#include <warpfuse/cached_attention_softmax.h>

#include <string>

#include "catch.h"
#include "compare.h"
#include "inputs.h"
#include "poison.h"
#include "reference.h"

struct AttentionShape {
  int64_t batch = 1, heads = 2, key_heads = 2, tokens = 1, slots = 16, head_dim = 8;
};

struct AttentionCall {
  at::Tensor query;       // [B, H, T, D]
  at::Tensor key, value;  // [B, Hkv, T, D]
  at::Tensor cache;       // [L, 2, B, Hkv, S, D]
  at::Tensor positions;   // [B, T]
  int64_t layer = 1;
  double scale = 0.125;
  int64_t window = 0;

  at::Tensor run() {
    return warpfuse::cached_attention_softmax(query, key, value, cache, layer, positions, scale,
                                              window);
  }
};

inline std::string describe(const AttentionCall& call) {
  return c10::str(describe(call.query), ", cache ", call.cache.sizes(), " of strides ",
                  call.cache.strides(), ", positions up to ", call.positions.max().item<int64_t>(),
                  ", window ", call.window);
}

/// [B, T, H, D] in memory, as a part of [B, T, parts * H, D].
inline at::Tensor heads_of_tokens(int64_t batch, int64_t heads, int64_t tokens, int64_t head_dim,
                                  at::ScalarType dtype, const at::Device& device) {
  return random_tensor({batch, tokens, heads, 3, head_dim}, dtype, device, 1.0)
      .select(3, 1)
      .transpose(1, 2);
}

/// The first row of the batch ends at the last slot, the next ones `apart` slots before each other.
/// Slots past a row's last position are NaN.
inline AttentionCall random_attention(const AttentionShape& s, at::ScalarType dtype,
                                      const at::Device& device, int64_t apart = 3) {
  const auto part = [&](int64_t heads) {
    return heads_of_tokens(s.batch, heads, s.tokens, s.head_dim, dtype, device);
  };
  AttentionCall call{.query = part(s.heads),
                     .key = part(s.key_heads),
                     .value = part(s.key_heads),
                     .cache = {},
                     .positions = {}};
  const at::Tensor last =
      (s.slots - 1 - at::arange(s.batch, at::kLong) * apart).clamp_min(s.tokens - 1).unsqueeze(1);
  const at::Tensor positions = last - (s.tokens - 1) + at::arange(s.tokens, at::kLong);
  at::Tensor cache =
      random_tensor({2, 2, s.batch, s.key_heads, s.slots, s.head_dim}, dtype, at::kCPU, 1.0);
  const at::Tensor is_stale = at::arange(s.slots, at::kLong).gt(last).view({s.batch, 1, -1, 1});
  call.cache = cache.masked_fill(is_stale, kNaN).to(device);
  call.positions = positions.to(device);
  call.scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  return call;
}

/// The cache after a call. Tokens without a slot are not written.
inline at::Tensor expected_cache(const AttentionCall& call) {
  at::Tensor cache = call.cache.cpu().clone();
  const at::Tensor positions = call.positions.cpu().to(at::kLong);
  const auto slots = positions.accessor<int64_t, 2>();
  const at::Tensor key = call.key.cpu(), value = call.value.cpu();
  for (int64_t batch = 0; batch < slots.size(0); ++batch) {
    const at::Tensor keys = cache[call.layer][0][batch], values = cache[call.layer][1][batch];
    for (int64_t token = 0; token < slots.size(1); ++token) {
      const int64_t slot = slots[batch][token];
      if (slot >= 0 && slot < cache.size(4)) {
        keys.select(1, slot).copy_(key[batch].select(1, token));
        values.select(1, slot).copy_(value[batch].select(1, token));
      }
    }
  }
  return cache;
}

/// What roundings to half precision cost, in units of 2^-24: tensor cores take the weights so, and
/// then the result and the expected one are rounded.
inline double half_roundings(const AttentionCall& call, const at::Device& runs_on) {
  constexpr int64_t kMinTokens = 16;
  if (!runs_on.is_cuda() || call.query.size(2) < kMinTokens) {
    return 0;
  }
  const at::ScalarType dtype = call.query.scalar_type();
  return dtype == at::kHalf       ? 3 * std::ldexp(1.0, 13)
         : dtype == at::kBFloat16 ? 3 * std::ldexp(1.0, 16)
                                  : 0;
}

/// runs_on: where the result is computed that this is compared with.
inline Expected expected_attention(const AttentionCall& call, const at::Device& runs_on) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
  const at::Tensor cache = wide(expected_cache(call)[call.layer]), query = wide(call.query);
  const int64_t group = query.size(1) / cache.size(2), slots = cache.size(3);
  const at::Tensor positions = call.positions.cpu().to(at::kLong).unsqueeze(-1);
  const at::Tensor slot = at::arange(slots, at::kLong);
  at::Tensor visible = slot.le(positions);
  if (call.window > 0) {
    visible = visible.logical_and(slot.gt(positions - call.window));
  }
  visible = visible.unsqueeze(1);  // [B, 1, T, S]
  // What no query sees does not matter.
  const at::Tensor is_seen = visible.any(2).unsqueeze(-1);  // [B, 1, S, 1]
  const at::Tensor keys =
      cache[0].masked_fill(is_seen.logical_not(), 0).repeat_interleave(group, 1);
  const at::Tensor values =
      cache[1].masked_fill(is_seen.logical_not(), 0).repeat_interleave(group, 1);
  const at::Tensor hidden = visible.logical_not();
  const at::Tensor scores =
      (at::matmul(query, keys.transpose(-1, -2)) * call.scale).masked_fill(hidden, -kInf);
  const at::Tensor p = at::softmax(scores, -1).masked_fill(hidden, 0);
  const at::Tensor of_scores =
      (at::matmul(query.abs(), keys.abs().transpose(-1, -2)) * std::abs(call.scale))
          .masked_fill(hidden, 0)
          .amax(-1, true);
  const at::Tensor error =
      at::matmul(p, values.abs()) * (16 + half_roundings(call, runs_on) + 8 * of_scores);
  const at::Device device = call.query.device();
  return {at::matmul(p, values).to(device), error.to(device)};
}
inline Expected expected_attention(const AttentionCall& call) {
  return expected_attention(call, call.query.device());
}

/// The result and the cache, on poisoned memory.
inline void check_attention(AttentionCall call) {
  INFO(describe(call));
  const Expected expected = expected_attention(call);
  const at::Tensor cache = expected_cache(call);
  const Poison poison;
  const at::Tensor output = call.run();
  CHECK(output.sizes() == call.query.sizes());
  CHECK(output.transpose(1, 2).is_contiguous());
  CHECK(mismatch(output, expected) == "");
  CHECK(bit_mismatch(call.cache.cpu(), cache) == "");
}
