#pragma once

#include "common/dropout.h"
#include "common/dtype.h"
#include "rowwise/key_mask.h"

namespace warpfuse {

/// output = softmax(scores * scale + mask) * keep * dropout.scale of the rows [B * H * Tq, Tk].
struct MaskedSoftmaxDropoutArguments {
  const void* scores;
  void* output;
  void* statistics;  // [rows, 2] or null: the maximum m of scores * scale + mask, log(sum(exp(. -
                     // m)))
  DType dtype;
  int64_t rows;
  double scale;
  KeyRules rules;
  MaskView mask;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2] or null
};

/// grad_scores from grad_output, the scores and their statistics.
struct MaskedSoftmaxDropoutBackwardArguments {
  const void* grad_output;
  const void* scores;
  const void* statistics;
  void* grad_scores;
  DType dtype;
  int64_t rows;
  double scale;
  KeyRules rules;
  MaskView mask;
  Dropout dropout;
  RngSource rng;
};

}  // namespace warpfuse
