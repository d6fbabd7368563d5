#pragma once

#include <ATen/TensorOperators.h>

#include "common/dropout.h"
#include "core/calls.h"

namespace warpfuse {

struct DropoutMaskOperator
    : Calls<DropoutMaskOperator, at::Tensor(const at::Tensor&, double, const at::Tensor&)> {
  static constexpr const char* kName = "_dropout_mask";
};

/// x * keep / (1 - dropout_p), with the mask that `rng` gives x.
inline at::Tensor dropped(const at::Tensor& x, double dropout_p, const at::Tensor& rng) {
  return x * DropoutMaskOperator::call(x, dropout_p, rng) * Dropout(dropout_p).scale;
}

}  // namespace warpfuse
