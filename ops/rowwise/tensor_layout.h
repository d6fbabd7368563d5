#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/WrapDimMinimal.h>

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

}  // namespace warpfuse
