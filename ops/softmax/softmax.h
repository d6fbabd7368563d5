#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/check.h"
#include "rowwise/layout.h"

namespace warpfuse {

/// The part of softmax's contract that all backends share: dtype as self.to(dtype) first, the
/// check of dtype and dim, and a contiguous tensor.
at::Tensor prepare_softmax(const char* op, const at::Tensor& self, int64_t dim,
                           std::optional<at::ScalarType> dtype);

/// The same for the backward: output and grad_output alike, both contiguous.
void check_softmax_backward(const char* op, const at::Tensor& grad_output,
                            const at::Tensor& output, int64_t dim);

/// tensor as [outer, columns, inner] around `dim`; a tensor without dimensions is one row of one.
RowLayout row_layout(const at::Tensor& tensor, int64_t dim);

}  // namespace warpfuse
