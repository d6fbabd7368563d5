#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DispatchKey.h>

#include <optional>

#include "common/philox.h"

namespace warpfuse {

/// Throws unless p is a probability; NaN is none.
void check_dropout_p(const char* op, double p);

/// Throws unless rng is a call's random state: seed and offset, int64 [2], on the data's device.
void check_rng(const char* op, const at::Tensor& rng, const at::Tensor& data);
void check_rng(const char* op, const std::optional<at::Tensor>& rng, const at::Tensor& data);

/// Where kernels find the numbers in the contiguous tensor `rng`.
RngSource rng_source(const at::Tensor& rng);

/// The same for a state that may be absent: then it is drawn from the default generator of
/// `device`. `held` keeps the memory of the result alive.
RngSource rng_source(const std::optional<at::Tensor>& rng, at::Tensor& held, c10::Device device);

/// x * keep / (1 - dropout_p), with the mask that `rng` gives x. Differentiable.
at::Tensor dropped(const at::Tensor& x, double dropout_p, const at::Tensor& rng);

/// The rng that an operator returns, for a kernel to fill. Without elements no kernel runs: then it
/// is the given one or zeros.
template <typename Backend>
at::Tensor rng_to_return(const at::Tensor& data, const std::optional<at::Tensor>& rng) {
  const auto options = data.options().dtype(at::kLong);
  if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
    if (data.numel() == 0) {
      return rng.has_value() ? rng->clone() : at::zeros({2}, options);
    }
  }
  return Backend::empty({2}, options);
}

}  // namespace warpfuse
