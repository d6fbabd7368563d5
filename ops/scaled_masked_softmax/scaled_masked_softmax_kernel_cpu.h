#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "rowwise/key_mask.h"

namespace warpfuse {

/// output = softmax(scores * scale + mask) of the rows [B * H * Tq, Tk].
struct MaskedSoftmaxArguments {
  const void* scores;
  void* output;
  DType dtype;
  double scale;
  KeyRules rules;
  MaskView mask;
};

/// grad_scores from grad_output and the forward's output.
struct MaskedSoftmaxBackwardArguments {
  const void* grad_output;
  const void* output;
  void* grad_scores;
  DType dtype;
  double scale;
  KeyRules rules;
  MaskView mask;
};

// Rows [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(masked_softmax_rows_cpu, MaskedSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_softmax_backward_rows_cpu, MaskedSoftmaxBackwardArguments)

}  // namespace warpfuse
