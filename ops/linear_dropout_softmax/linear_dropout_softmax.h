#pragma once

#include <cstdint>

#include "common/dropout.h"
#include "common/dtype.h"
#include "core/kernel.h"

namespace warpfuse {

/// output = softmax((input weight^T + bias) * keep * scale) along the columns, with keep the mask
/// of `dropout`, whose random numbers are those of the element's place in the output.
struct LinearDropoutSoftmaxArguments {
  const void* input;   // [rows, inner]
  const void* weight;  // [columns, inner]
  DType dtype;         // of all of them
  bool split;          // float32 is multiplied as pieces of float16, else as TF32
  int64_t rows, columns, inner;
  Dropout dropout;
  const void* bias = nullptr;  // [columns] or null
  void* output = nullptr;      // [rows, columns]
  RngSource rng = {};
  int64_t* rng_used = nullptr;  // [2]: receives seed and offset; null: nothing is drawn or dropped
};

/// Whether launch_cuda() takes these arguments on the current device and is faster than at::linear
/// and a softmax kernel: float16, bfloat16, TF32 or split float32 on compute capability 9.0; up to
/// 128 rows, and split from 64 on; a multiple of 8 columns, at most 128 times the GPU's
/// multiprocessors; input and weight with 16-byte aligned rows. Reads only the arguments up to
/// `dropout`.
bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments);

/// The product, dropout and softmax in one kernel, which stores no logits.
cudaError_t launch_cuda(const LinearDropoutSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

}  // namespace warpfuse
