#pragma once

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

}  // namespace warpfuse
