#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/core/WrapDimMinimal.h>

#include <optional>
#include <utility>

#include "common/check.h"
#include "rowwise/layout.h"
#include "rowwise/tuning.h"

namespace warpfuse {

/// Elements from a row to the next along the last dimension; none unless they all lie at one
/// distance.
inline std::optional<int64_t> row_stride(const at::Tensor& tensor) {
  if (tensor.dim() == 0 || tensor.is_contiguous()) {
    return tensor.dim() == 0 ? 1 : tensor.size(-1);
  }
  const int64_t last = tensor.dim() - 1;
  if (tensor.size(last) > 1 && tensor.stride(last) != 1) {
    return std::nullopt;
  }
  int64_t stride = tensor.size(last), rows = 1;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (tensor.size(d) == 1) {
      continue;
    }
    if (rows > 1 && tensor.stride(d) != stride * rows) {
      return std::nullopt;
    }
    stride = rows > 1 ? stride : tensor.stride(d);
    rows *= tensor.size(d);
  }
  return stride;
}

/// The tensor, contiguous. A copy of a CUDA tensor is in `output`, over which kernels of the last
/// dimension may write; elsewhere it has memory of its own.
inline at::Tensor contiguous_in(const at::Tensor& tensor, int64_t dim, const at::Tensor& output) {
  const bool in_output = !tensor.is_contiguous() && tensor.is_cuda() && dim == tensor.dim() - 1;
  return in_output ? output.copy_(tensor) : tensor.contiguous();
}

/// A gradient's two inputs, contiguous; a copy of one of them is in `grad_input` where it can be.
inline std::pair<at::Tensor, at::Tensor> contiguous_in(const at::Tensor& grad_output,
                                                       const at::Tensor& saved, int64_t dim,
                                                       const at::Tensor& grad_input) {
  at::Tensor g = contiguous_in(grad_output, dim, grad_input);
  at::Tensor x = g.is_same(grad_input) ? saved.contiguous() : contiguous_in(saved, dim, grad_input);
  return {std::move(g), std::move(x)};
}

/// A forward's input as kernels read it: rows along the last dimension with a gap behind each.
struct InputRows {
  at::Tensor tensor;
  int gap = 0;  // elements
};

/// The input as it lies in memory where the tier chunk reads its rows there, else contiguous.
inline InputRows input_rows(const at::Tensor& input, int64_t dim, const at::Tensor& output) {
  if (!input.is_contiguous() && input.is_cuda() && dim == input.dim() - 1 &&
      input.element_size() <= 4) {
    const int64_t columns = input.size(dim), stride = row_stride(input).value_or(0);
    if (columns <= kMaxGapColumns && stride > columns && stride <= kMaxGapStride) {
      return {input, static_cast<int>(stride - columns)};
    }
  }
  return {contiguous_in(input, dim, output)};
}

/// tensor as [outer, columns, inner] around `dim`; a tensor without dimensions is one row of one.
inline RowLayout row_layout(const at::Tensor& tensor, int64_t dim) {
  RowLayout layout{1, 1, 1};
  dim = c10::maybe_wrap_dim(dim, tensor.dim());
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    (d < dim ? layout.outer : d == dim ? layout.columns : layout.inner) *= tensor.size(d);
  }
  return layout;
}

// Row statistics: the forward of a softmax with dropout behind it saves the maximum m of each row
// and log(sum(exp(x - m))), from which the backward recomputes the softmax. A row without a visible
// key has m = +inf and 0.

inline at::ScalarType statistics_dtype(const at::Tensor& self) {
  return self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// [rows, 2]
inline c10::SymDimVector statistics_sizes(const at::Tensor& self, int64_t dim) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  c10::SymInt rows = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) {
      rows *= self.sym_size(d);
    }
  }
  return {rows, 2};
}

inline void check_statistics(const char* op, const at::Tensor& statistics, const at::Tensor& self,
                             int64_t dim) {
  check_floating(op, "statistics", statistics);
  const at::ScalarType dtype = statistics_dtype(self);
  WARPFUSE_CHECK(statistics.scalar_type() == dtype, op, "statistics", dtype,
                 statistics.scalar_type());
  const c10::SymDimVector sizes = statistics_sizes(self, dim);
  WARPFUSE_CHECK(statistics.sym_sizes() == c10::SymIntArrayRef(sizes), op, "statistics",
                 c10::str("shape [rows, 2] = ", c10::SymIntArrayRef(sizes)),
                 statistics.sym_sizes());
  check_same_device(op, "statistics", statistics, self);
}

}  // namespace warpfuse
