#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "rowwise/layout.h"

namespace warpfuse {

/// output = softmax(input) or log_softmax(input) along the columns of `layout`.
struct SoftmaxArguments {
  const void* input;  // [outer, columns, inner]
  void* output;       // [outer, columns, inner]
  DType dtype;
  RowLayout layout;
  bool log;
};

/// grad_input from grad_output and the forward's output, all [outer, columns, inner].
struct SoftmaxBackwardArguments {
  const void* grad_output;
  const void* output;
  void* grad_input;
  DType dtype;
  RowLayout layout;
  bool log;
};

// Rows [begin, end) of a tensor; row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_rows_cpu, SoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_rows_cpu, SoftmaxBackwardArguments)

/// The plain algorithm without vectors: three loops a row.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_naive_rows_cpu, SoftmaxArguments)

}  // namespace warpfuse
