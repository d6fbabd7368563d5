#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "rowwise/key_mask.h"

namespace warpfuse {

/// output = softmax(scores * scale + mask) of the rows [B * H * Tq, Tk].
struct MaskedSoftmaxArguments {
  const void* scores;
  void* output;
  DType dtype;
  int64_t rows;
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
  int64_t rows;
  double scale;
  KeyRules rules;
  MaskView mask;
};

}  // namespace warpfuse
