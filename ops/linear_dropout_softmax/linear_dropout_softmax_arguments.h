#pragma once

#include "common/dropout.h"
#include "common/dtype.h"

namespace warpfuse {

/// output = softmax((input weight^T + bias) * keep * scale) along the columns, with keep the mask
/// of `dropout`, whose random numbers are those of the element's place in the output.
struct LinearDropoutSoftmaxArguments {
  const void* input;   // [rows, inner]
  const void* weight;  // [columns, inner]
  DType dtype;         // of all of them; float32 is multiplied as TF32
  int64_t rows, columns, inner;
  Dropout dropout;
  // Not asked for whether there is a kernel.
  const void* bias = nullptr;  // [columns] or null
  void* output = nullptr;      // [rows, columns]
  RngSource rng = {};
  int64_t* rng_used = nullptr;  // [2]: seed and offset are written there
};

}  // namespace warpfuse
