#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/core/WrapDimMinimal.h>

#include "common/check.h"

namespace warpfuse {

// What the forward of a softmax with dropout behind it keeps of each row: its maximum m and the
// logarithm of sum(exp(x - m)), from which the backward has the softmax again. A row without a
// visible key has m = +inf and 0.

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
