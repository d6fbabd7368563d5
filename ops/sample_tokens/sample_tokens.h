#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "common/check.h"
#include "common/counters.h"
#include "sample_tokens/sample_tokens_arguments.h"

namespace warpfuse {

struct SampleInputs {
  const at::Tensor& logits;  // [.., V]
  const at::Tensor& step;
  int64_t seed;
  double temperature;
  int64_t top_k;
  double top_p;
  double min_p;
  const std::optional<at::Tensor>& rows;
};

/// Everything but V, which must be known.
void check_sample_tokens(const SampleInputs& inputs);
void check_vocabulary(const SampleInputs& inputs);

/// What kernels read, alive for as long as they are launched, and what they write.
struct SampleTensors {
  at::Tensor logits;
  at::Tensor step;
  at::Tensor rows;
  at::Tensor tokens;
};
SampleTokensArguments sample_arguments(const SampleInputs& inputs, SampleTensors& tensors);

/// The operator on a backend: checks, and launch(arguments) where there are rows.
template <typename Launch>
at::Tensor run_sample_tokens(Counter& calls, const SampleInputs& inputs, const Launch& launch) {
  check_sample_tokens(inputs);
  check_vocabulary(inputs);
  calls.add();
  SampleTensors tensors;
  const SampleTokensArguments arguments = sample_arguments(inputs, tensors);
  if (arguments.rows > 0) {
    launch(arguments);
  }
  return tensors.tokens;
}

}  // namespace warpfuse
