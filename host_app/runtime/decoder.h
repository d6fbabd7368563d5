#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <vector>

#include "runtime/bundle.h"

namespace warpfuse::host {

// One sequence (batch 1) of a traced language model and its key and value caches.
//
// The model sees the first `bucket` slots of the caches, the smallest of 128, 256, 512, ... that
// holds the sequence: attention then costs what the sequence needs, not what the context allows.
class Decoder {
 public:
  // Throws Error(model) when the bundle is no language model.
  Decoder(const Bundle& bundle, torch::jit::Module module, c10::Device device);

  // Starts a new sequence. Logits [V] of its last position, on the device. Throws Error(model) when
  // the sequence is longer than the context or has an id that the model does not know.
  at::Tensor prefill(const std::vector<int64_t>& ids);
  // Appends one token. Logits [V].
  at::Tensor decode(int64_t id);
  // Logits [T, V] of all positions of a new sequence at once.
  at::Tensor forward(const std::vector<int64_t>& ids);

  // Throws Error(model) when a prompt of this many tokens does not fit the context.
  void require_fits(int64_t tokens) const;

  // Tokens in the sequence; the next one takes this position.
  int64_t length() const { return length_; }
  int64_t context() const { return spec_.context; }

 private:
  void start(const std::vector<int64_t>& ids);
  void require_known(int64_t id) const;
  at::Tensor run(const char* method, std::vector<c10::IValue> inputs);
  at::Tensor row(const std::vector<int64_t>& values) const;

  LanguageModelSpec spec_;
  torch::jit::Module module_;
  c10::Device device_;
  at::Tensor keys_;    // [L, 1, H, context, D]
  at::Tensor values_;  // [L, 1, H, context, D]
  int64_t length_ = 0;
};

// The smallest bucket with room for `length` tokens, at most the context.
int64_t cache_bucket(int64_t length, int64_t context);

// Logits as the sampler takes them.
std::vector<double> to_doubles(const at::Tensor& logits);

}  // namespace warpfuse::host
