#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include "runtime/load/bundle.h"

namespace warpfuse::host {

// Keys and values, [L, 2, B, H, slots, D]: one sequence a row B. Parts share the memory.
struct Cache {
  at::Tensor entries;

  Cache rows(int64_t first, int64_t count) const;
  Cache slots(int64_t count) const;
};

// The smallest of 128, 256, 512, 768, 1024, ... with room for `length` tokens, at most the context.
int64_t cache_bucket(int64_t length, int64_t context);

// The traced model of a bundle: the methods that every variant has.
//
// Token ids and positions are i64[B, T] on the model's device. A call writes the keys and values of
// its tokens into the cache and attends over all slots that it was given; a query sees those up to
// its own position.
class LanguageModel {
 public:
  // Throws Error(model) when the bundle is no language model.
  LanguageModel(const Bundle& bundle, torch::jit::Module module, c10::Device device);

  const LanguageModelSpec& spec() const { return spec_; }
  c10::Device device() const { return device_; }
  c10::ScalarType dtype() const { return dtype_; }
  // As in the file.
  int64_t weight_bytes() const { return weight_bytes_; }

  // Filled with zeros: a slot that is not seen is multiplied by zero, so it must hold a number.
  // Throws Error(device) when there is no room for it.
  Cache make_cache(int64_t rows, int64_t slots) const;
  int64_t cache_bytes(int64_t rows, int64_t slots) const;
  // Slots for sequences of up to `length` tokens. On a GPU a bucket, so that few sizes occur: a
  // CUDA graph is of one size. On the CPU no more than there are.
  int64_t slots_for(int64_t length) const;

  // The model's result is refused by Error(model) where it has another shape than said here.

  // Logits [B, V] of row `last` i64[B].
  at::Tensor prefill(const at::Tensor& ids, const at::Tensor& positions, const at::Tensor& last,
                     const Cache& cache) const;
  // Logits [B, V] of one token each.
  at::Tensor decode(const at::Tensor& ids, const at::Tensor& positions, const Cache& cache) const;
  // Whether there is next().
  bool has_next() const { return module_.find_method(kNextMethod).has_value(); }
  // The most probable tokens i64[B] after such a step, -1 where a logit is NaN.
  at::Tensor next(const at::Tensor& ids, const at::Tensor& positions, const Cache& cache) const;
  // Logits [B, T, V].
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& positions, const Cache& cache) const;

  // A token id past the embedding would be undefined behaviour on a GPU. Throws Error(model).
  void require_known(const std::vector<int64_t>& ids) const;
  // Throws Error(model) when a prompt of this many tokens does not fit the context; `source` says
  // where it is from.
  void require_fits(int64_t tokens, const std::string& source = "") const;

 private:
  // A result of `expected` sizes: logits, or integers.
  at::Tensor call(const char* method, std::vector<c10::IValue> inputs, at::IntArrayRef expected,
                  bool is_logits = true) const;

  LanguageModelSpec spec_;
  c10::ScalarType dtype_;
  torch::jit::Module module_;
  c10::Device device_;
  int64_t weight_bytes_ = 0;
};

// The positions of tokens [B, T] whose sequences have `before` others already.
at::Tensor positions_of(const at::Tensor& ids, int64_t before = 0);

// Applies the passes of graph_passes.h that a device needs.
void apply_passes(torch::jit::Module& module, c10::Device device);

// Loads a bundle's model and applies these passes, after rewrite_loaded() if it is to be
// rewritten. Throws Error(model).
LanguageModel load_language_model(const Bundle& bundle, c10::Device device, bool rewritten = false);

// A language model of a TorchScript file that is in no bundle. Its method forward takes token ids
// [B, T] and gives logits [B, T, V], alone, as the first of a tuple, or as "logits" of a
// dictionary.
//
// It has no cache: each step computes all logits of its sequences again, and what the caller takes
// for the cache keeps their token ids. Rows shorter than the longest have others behind their end,
// which a causal model does not see. `context` is the caller's bound; the model's own is not known,
// and its error at a longer sequence is an Error(model).
LanguageModel load_uncached_model(const std::filesystem::path& file, c10::Device device,
                                  int64_t context, bool rewritten);

}  // namespace warpfuse::host
