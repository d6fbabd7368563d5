#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/core/WrapDimMinimal.h>

#include "common/check.h"
#include "rowwise/layout.h"

namespace warpfuse {

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
