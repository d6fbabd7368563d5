#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "common/check.h"
#include "common/philox.h"

namespace warpfuse {

/// Throws unless p is a probability; NaN is none.
inline void check_dropout_p(const char* op, double p) {
  WARPFUSE_CHECK(p >= 0 && p <= 1, op, "dropout_p", "a probability from 0 to 1", p);
}

/// The random state of a call is a tensor of seed and offset beside the data.
inline void check_rng(const char* op, const at::Tensor& rng, const at::Tensor& data) {
  WARPFUSE_CHECK(rng.defined(), op, "rng", "a tensor", "an undefined one");
  WARPFUSE_CHECK(rng.scalar_type() == at::kLong, op, "rng", "Long", rng.scalar_type());
  WARPFUSE_CHECK(rng.dim() == 1 && rng.sym_size(0) == 2, op, "rng", "shape [2]", rng.sym_sizes());
  check_same_device(op, "rng", rng, data);
}

inline void check_rng(const char* op, const std::optional<at::Tensor>& rng,
                      const at::Tensor& data) {
  if (rng.has_value()) {
    check_rng(op, *rng, data);
  }
}

/// Where kernels find what the contiguous tensor `rng` holds.
inline RngSource source_of(const at::Tensor& rng) {
  const auto* at = rng.const_data_ptr<int64_t>();
  return {.seed_at = at, .offset_at = at + 1};
}

/// Where a call finds its random numbers: in the given rng, else where draw() says. `held` keeps
/// alive what the result points to.
template <typename Draw>
RngSource rng_source(const std::optional<at::Tensor>& rng, at::Tensor& held, const Draw& draw) {
  if (!rng.has_value()) {
    return draw();
  }
  held = rng->contiguous();
  return source_of(held);
}

/// The rng that an operator returns, for a kernel to fill; where nothing is drawn, for want of
/// elements, it is the given one or zeros.
inline at::Tensor rng_to_return(const at::Tensor& data, const std::optional<at::Tensor>& rng) {
  const auto options = data.options().dtype(at::kLong);
  if (data.numel() > 0) {
    return at::empty({2}, options);
  }
  return rng.has_value() ? rng->clone() : at::zeros({2}, options);
}

}  // namespace warpfuse
