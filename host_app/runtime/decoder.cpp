#include "runtime/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kSmallestBucket = 128;

}  // namespace

int64_t cache_bucket(int64_t length, int64_t context) {
  int64_t bucket = kSmallestBucket;
  while (bucket < length) {
    bucket *= 2;
  }
  return std::min(bucket, context);
}

std::vector<double> to_doubles(const at::Tensor& logits) {
  const at::Tensor values = logits.to(at::Device(at::kCPU), at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

Decoder::Decoder(const Bundle& bundle, torch::jit::Module module, c10::Device device)
    : spec_(language_model_of(bundle)), module_(std::move(module)), device_(device) {
  for (const char* method : {"prefill", "decode", "forward"}) {
    if (!module_.find_method(method)) {
      fail(ExitCode::model, "{}: no method '{}'", bundle.model_file().string(), method);
    }
  }
  const c10::InferenceMode inference;
  const std::vector<int64_t> shape{spec_.layers, 1, spec_.heads, spec_.context, spec_.head_dim};
  const at::TensorOptions options = at::TensorOptions().dtype(bundle.dtype).device(device);
  translating_errors(ExitCode::model, "key and value caches", [&] {
    keys_ = at::zeros(shape, options);
    values_ = at::zeros(shape, options);
  });
}

at::Tensor Decoder::row(const std::vector<int64_t>& values) const {
  return at::tensor(values, at::kLong).unsqueeze(0).to(device_);
}

at::Tensor Decoder::run(const char* method, std::vector<c10::IValue> inputs) {
  const int64_t bucket = cache_bucket(length_, spec_.context);
  inputs.emplace_back(keys_.narrow(3, 0, bucket));
  inputs.emplace_back(values_.narrow(3, 0, bucket));
  return translating_errors(ExitCode::model, method, [&] {
    const c10::InferenceMode inference;
    return module_.get_method(method)(std::move(inputs)).toTensor().squeeze(0);
  });
}

void Decoder::start(const std::vector<int64_t>& ids) {
  if (ids.empty()) {
    fail(ExitCode::model, "a sequence needs at least one token");
  }
  length_ = static_cast<int64_t>(ids.size());
  require_fits(length_);
  std::ranges::for_each(ids, [this](int64_t id) { require_known(id); });
}

// An id past the embedding would be undefined behaviour on a GPU.
void Decoder::require_known(int64_t id) const {
  if (id < 0 || id >= spec_.vocab_size) {
    fail(ExitCode::model, "token id {} is outside the model's vocabulary of {}", id,
         spec_.vocab_size);
  }
}

void Decoder::require_fits(int64_t tokens) const {
  if (tokens > spec_.context) {
    fail(ExitCode::model, "the prompt has {} tokens, the model's context is {}", tokens,
         spec_.context);
  }
}

at::Tensor Decoder::prefill(const std::vector<int64_t>& ids) {
  start(ids);
  std::vector<int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), int64_t{0});
  const at::Tensor last = at::tensor({length_ - 1}, at::kLong).to(device_);
  return run("prefill", {row(ids), row(positions), last});
}

at::Tensor Decoder::forward(const std::vector<int64_t>& ids) {
  start(ids);
  std::vector<int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), int64_t{0});
  return run("forward", {row(ids), row(positions)});
}

at::Tensor Decoder::decode(int64_t id) {
  if (length_ >= spec_.context) {
    fail(ExitCode::model, "the model's context of {} tokens is full", spec_.context);
  }
  require_known(id);
  const int64_t position = length_++;
  return run("decode", {row({id}), row({position})});
}

}  // namespace warpfuse::host
