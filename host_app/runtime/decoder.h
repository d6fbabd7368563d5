#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/language_model.h"

namespace warpfuse::host {

// One sequence of a language model, step by step, for comparing what it gives.
class Decoder {
 public:
  explicit Decoder(LanguageModel model);

  // Starts a new sequence. Logits [V] of its last position, on the device. Throws Error(model) when
  // the sequence is longer than the context or has an id that the model does not know.
  at::Tensor prefill(const std::vector<int64_t>& ids);
  // Appends one token. Logits [V].
  at::Tensor decode(int64_t id);
  // Logits [T, V] of all positions of a new sequence at once.
  at::Tensor forward(const std::vector<int64_t>& ids);

  // Tokens in the sequence; the next one takes this position.
  int64_t length() const { return length_; }
  int64_t context() const { return model_.spec().context; }

 private:
  void start(const std::vector<int64_t>& ids);
  at::Tensor row(const std::vector<int64_t>& values) const;
  at::Tensor first_positions() const;
  Cache seen() const { return cache_.slots(model_.slots_for(length_)); }

  LanguageModel model_;
  Cache cache_;
  int64_t length_ = 0;
};

// The token with the largest logit, the lowest id among equals; empty when a logit is NaN.
std::optional<int64_t> argmax(const std::vector<double>& logits);

// Logits [V] on the CPU.
std::vector<double> to_doubles(const at::Tensor& logits);

}  // namespace warpfuse::host
