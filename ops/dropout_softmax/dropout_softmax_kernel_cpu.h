#pragma once

#include "common/cpu_capability.h"
#include "dropout_softmax/dropout_softmax_arguments.h"

namespace warpfuse {

/// output = input * keep * dropout.scale; they may be the same. scaled: the input is probabilities
/// that were multiplied by dropout.scale before they were rounded.
struct DropElementsArguments {
  const void* input;
  void* output;
  DType dtype;
  Dropout dropout;
  Rng rng;
  bool scaled;
};

/// output = softmax(input) * scale.
struct ScaledSoftmaxArguments {
  const void* input;
  void* output;
  DType dtype;
  RowLayout layout;
  double scale;
};

// Rows [begin, end) along the last dimension, in one pass.
WARPFUSE_DECLARE_CPU_KERNEL(dropout_softmax_rows_cpu, DropoutSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(dropout_softmax_backward_rows_cpu, DropoutSoftmaxBackwardArguments)

// Along another dimension dropout goes by itself, over the elements [begin, end), beside the
// softmax of rows [begin, end), which drops nothing. Row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(drop_elements_cpu, DropElementsArguments)
WARPFUSE_DECLARE_CPU_KERNEL(undropped_lanes_cpu, ScaledSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(undropped_backward_lanes_cpu, DropoutSoftmaxBackwardArguments)

// Elements [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(mark_elements_cpu, DropoutMaskArguments)

}  // namespace warpfuse
