#pragma once

#include "common/dropout.h"
#include "common/dtype.h"
#include "rowwise/layout.h"

namespace warpfuse {

/// With keep[e] the mask of `dropout` and s(x) the softmax along the columns of `layout`:
///   dropout first:  output = s(x * keep * scale)
///   softmax first:  output = s(x) * keep * scale
/// The random numbers are those of the element's place in the contiguous [outer, columns, inner].
struct DropoutSoftmaxArguments {
  const void* input;  // [outer, columns, inner]
  void* output;       // [outer, columns, inner]
  void* statistics;   // softmax first: [rows, 2] or null, the maximum m and log(sum(exp(x - m))),
                      // in float32, or in float64 for such input
  DType dtype;
  RowLayout layout;
  bool softmax_first;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2]: seed and offset are written there; may be null
};

/// grad_input from grad_output g, with the same random numbers:
///   dropout first:  keep * scale * y * (g - sum(y * g)),  y the forward's output
///   softmax first:  s * (h - sum(s * h)),  h = g * keep * scale, s = exp(x - m - log sum)
struct DropoutSoftmaxBackwardArguments {
  const void* grad_output;
  const void* saved;       // the output where dropout came first, else the input
  const void* statistics;  // softmax first: [rows, 2]
  void* grad_input;
  DType dtype;
  RowLayout layout;
  bool softmax_first;
  Dropout dropout;
  RngSource rng;
};

/// mask[e] = whether element e is kept.
struct DropoutMaskArguments {
  bool* mask;  // [elements]
  int64_t elements;
  Dropout dropout;
  RngSource rng;
};

}  // namespace warpfuse
