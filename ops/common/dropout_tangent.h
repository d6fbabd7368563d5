#pragma once

#include <ATen/TensorOperators.h>
#include <warpfuse/dispatch.h>

#include "common/dropout.h"

namespace warpfuse {

/// x * keep / (1 - dropout_p), with the mask that `rng` gives x.
inline at::Tensor dropped(const at::Tensor& x, double dropout_p, const at::Tensor& rng) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, double, const at::Tensor&)>(
          "warpfuse::_dropout_mask");
  return x * op.call(x, dropout_p, rng) * Dropout(dropout_p).scale;
}

}  // namespace warpfuse
