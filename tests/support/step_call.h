#pragma once

// gpt2_step as tests call it, and what it should write and choose, in float64.

#include <ATen/ATen.h>
#include <warpfuse/gpt2_step.h>

#include <cmath>
#include <string>
#include <vector>

#include "inputs.h"

struct StepShape {
  int64_t batch = 2, layers = 2, heads = 2, head_dim = 16, inner = 96, vocabulary = 301, slots = 24;
};

struct StepCall {
  at::Tensor ids = {}, positions = {};                       // [B, 1]
  at::Tensor cache = {};                                     // [L, 2, B, H, S, D]
  at::Tensor token_embedding = {}, position_embedding = {};  // [.., C]
  std::vector<at::Tensor> layers = {};                       // 12 per layer
  at::Tensor norm_weight = {}, norm_bias = {}, head = {};
  double scale = 0.25, eps = 1e-5;
  std::string activation = "gelu_tanh";

  at::Tensor run() {
    return warpfuse::gpt2_step(ids, positions, cache, token_embedding, position_embedding, layers,
                               norm_weight, norm_bias, head, scale, eps, activation);
  }
};

inline std::string describe(const StepCall& call) {
  return c10::str(describe(call.head), ", cache ", call.cache.sizes(), " of strides ",
                  call.cache.strides(), ", inner ", call.layers[8].sizes(), ", ", call.activation);
}

/// The first row of the batch is at the last slot, the next ones 3 slots before each other. Slots
/// from a row's position on are NaN.
inline StepCall random_step(const StepShape& s, at::ScalarType dtype, const at::Device& device) {
  const int64_t width = s.heads * s.head_dim;
  const auto matrix = [&](int64_t out, int64_t in, double scale = 1) {
    return random_tensor({out, in}, dtype, device, scale / std::sqrt(static_cast<double>(in)));
  };
  const auto vector = [&](int64_t size, double scale = 0.1) {
    return random_tensor({size}, dtype, device, scale);
  };
  StepCall call{
      .ids = at::randint(s.vocabulary, {s.batch, 1}, at::kLong).to(device),
      .positions =
          (s.slots - 1 - at::arange(s.batch, at::kLong) * 3).clamp_min(0).unsqueeze(1).to(device),
      .token_embedding = random_tensor({s.vocabulary, width}, dtype, device, 1.0),
      .position_embedding = random_tensor({s.slots, width}, dtype, device, 0.5),
      .norm_weight = vector(width, 1.0),
      .norm_bias = vector(width),
      .head = matrix(s.vocabulary, width, 4)};
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const at::Tensor of_layer[] = {
        vector(width, 1.0),     vector(width),   matrix(3 * width, width), vector(3 * width),
        matrix(width, width),   vector(width),   vector(width, 1.0),       vector(width),
        matrix(s.inner, width), vector(s.inner), matrix(width, s.inner),   vector(width)};
    call.layers.insert(call.layers.end(), std::begin(of_layer), std::end(of_layer));
  }
  const at::Tensor cache =
      random_tensor({s.layers, 2, s.batch, s.heads, s.slots, s.head_dim}, dtype, device, 1.0);
  const at::Tensor is_stale =
      at::arange(s.slots, call.ids.options()).ge(call.positions).view({s.batch, 1, -1, 1});
  call.cache = cache.masked_fill(is_stale, kNaN);
  call.scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  return call;
}

struct ExpectedStep {
  at::Tensor cache;   // after the step
  at::Tensor logits;  // [B, V]
};

/// On the CPU; positions are in the cache.
inline ExpectedStep expected_step(const StepCall& call) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
  const at::Tensor ids = call.ids.cpu(), positions = call.positions.cpu();
  at::Tensor cache = wide(call.cache).clone();
  const int64_t batch = cache.size(2), heads = cache.size(3), head_dim = cache.size(5);
  const int64_t width = heads * head_dim;
  const auto norm = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, {width}, wide(weight), wide(bias), call.eps);
  };
  const auto linear = [&](const at::Tensor& x, int64_t index) {
    return at::linear(x, wide(call.layers[index]), wide(call.layers[index + 1]));
  };
  at::Tensor x = at::embedding(wide(call.token_embedding), ids) +
                 at::embedding(wide(call.position_embedding), positions);
  const at::Tensor hidden =
      at::arange(cache.size(4), at::kLong).gt(positions).view({batch, 1, 1, -1});
  for (int64_t layer = 0; layer < cache.size(0); ++layer) {
    const int64_t first = 12 * layer;
    const at::Tensor qkv = linear(norm(x, call.layers[first], call.layers[first + 1]), first + 2)
                               .view({batch, heads, 3, head_dim});
    for (int64_t row = 0; row < batch; ++row) {
      const auto slot = positions[row][0].item<int64_t>();
      for (const int64_t part : {0, 1}) {
        cache[layer][part][row].select(1, slot).copy_(qkv[row].select(1, 1 + part));
      }
    }
    const auto visible = [&](int64_t part) {
      return cache[layer][part].masked_fill(hidden.view({batch, 1, -1, 1}), 0);
    };
    const at::Tensor query = qkv.select(2, 0).unsqueeze(2);  // [B, H, 1, D]
    const at::Tensor scores = at::matmul(query, visible(0).transpose(-1, -2)) * call.scale;
    const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -kInf), -1);
    const at::Tensor mixed = at::matmul(weights, visible(1)).reshape({batch, 1, width});
    x = x + linear(mixed, first + 4);
    at::Tensor inner = linear(norm(x, call.layers[first + 6], call.layers[first + 7]), first + 8);
    if (call.activation != "none") {
      inner = at::gelu(inner, call.activation == "gelu" ? "none" : "tanh");
    }
    x = x + linear(inner, first + 10);
  }
  const at::Tensor last = norm(x.squeeze(1), call.norm_weight, call.norm_bias);
  return {cache, at::matmul(last, wide(call.head).t())};
}
