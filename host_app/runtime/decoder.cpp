#include "runtime/decoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/errors.h"

namespace warpfuse::host {

std::optional<int64_t> argmax(const std::vector<double>& logits) {
  if (std::ranges::any_of(logits, [](double logit) { return std::isnan(logit); })) {
    return std::nullopt;
  }
  return std::ranges::max_element(logits) - logits.begin();
}

std::vector<double> to_doubles(const at::Tensor& logits) {
  const at::Tensor values = logits.to(at::Device(at::kCPU), at::kDouble).contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

Decoder::Decoder(LanguageModel model)
    : model_(std::move(model)), cache_(model_.make_cache(1, model_.spec().context)) {}

at::Tensor Decoder::row(const std::vector<int64_t>& values) const {
  return at::tensor(values, at::kLong).unsqueeze(0).to(model_.device());
}

at::Tensor Decoder::first_positions() const {
  return at::arange(length_, at::TensorOptions(at::kLong).device(model_.device())).unsqueeze(0);
}

void Decoder::start(const std::vector<int64_t>& ids) {
  if (ids.empty()) {
    fail(ExitCode::model, "a sequence needs at least one token");
  }
  length_ = static_cast<int64_t>(ids.size());
  model_.require_fits(length_);
  model_.require_known(ids);
}

at::Tensor Decoder::prefill(const std::vector<int64_t>& ids) {
  start(ids);
  return model_.prefill(row(ids), first_positions(), row({length_ - 1}).squeeze(0), seen())
      .squeeze(0);
}

at::Tensor Decoder::forward(const std::vector<int64_t>& ids) {
  start(ids);
  return model_.forward(row(ids), first_positions(), seen()).squeeze(0);
}

at::Tensor Decoder::decode(int64_t id) {
  if (length_ >= context()) {
    fail(ExitCode::model, "the model's context of {} tokens is full", context());
  }
  model_.require_known({id});
  const int64_t position = length_++;
  return model_.decode(row({id}), row({position}), seen()).squeeze(0);
}

}  // namespace warpfuse::host
