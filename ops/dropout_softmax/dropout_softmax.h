#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dropout.h"
#include "common/dtype.h"
#include "core/kernel.h"
#include "rowwise/cpu/limits.h"
#include "rowwise/layout.h"

namespace warpfuse {

/// With keep[e] the mask of `dropout` and s(x) the softmax along the columns of `layout`:
///   dropout first:  output = s(x * keep * scale)
///   softmax first:  output = s(x) * keep * scale
/// The random numbers are those of the element's place in the contiguous [outer, columns, inner].
struct DropoutSoftmaxArguments {
  const void* input;  // [outer, columns, inner]
  void* output;       // [outer, columns, inner], may be the input
  void* statistics;   // softmax first: [rows, 2] or null, the maximum m and log(sum(exp(x - m))),
                      // in float32, or in float64 for such input
  DType dtype;
  RowLayout layout;
  bool softmax_first;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2] or null: receives seed and offset
};

/// grad_input from grad_output g, with the same random numbers:
///   dropout first:  keep * scale * y * (g - sum(y * g)),  y the forward's output
///   softmax first:  s * (h - sum(s * h)),  h = g * keep * scale, s = exp(x - m - log sum)
struct DropoutSoftmaxBackwardArguments {
  const void* grad_output;
  const void* saved;       // the output where dropout came first, else the input
  const void* statistics;  // softmax first: [rows, 2]
  void* grad_input;        // may be grad_output or saved
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

/// Dropout alone, beside the softmax kernels of a dimension that is not the last.
struct DropElementsArguments {
  const void* input;
  void* output;  // input * keep * dropout.scale, may be the input
  DType dtype;
  int64_t elements;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2] or null: receives seed and offset
  bool scaled;  // the input is probabilities that were multiplied by dropout.scale before rounding
};

void launch_cpu(const DropoutSoftmaxArguments& arguments);
void launch_cpu(const DropoutSoftmaxBackwardArguments& arguments);
void launch_cpu(const DropoutMaskArguments& arguments);
cudaError_t launch_cuda(const DropoutSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const DropoutSoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const DropoutMaskArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const DropElementsArguments& arguments, cudaStream_t stream);

// --- the CPU kernels, once per instruction set ------------------------------------------------

/// output = softmax(input) * scale.
struct ScaledSoftmaxArguments {
  const void* input;
  void* output;
  DType dtype;
  RowLayout layout;
  double scale;
};

/// Whether the CPU transposes blocks of rows. The backward is faster without it for float32 rows
/// that fill a vector of AVX2.
inline bool is_transposed(const DropoutSoftmaxArguments& in) {
  return in.layout.inner == 1 && in.layout.columns <= kTransposedColumns;
}
inline bool is_transposed(const DropoutSoftmaxBackwardArguments& in) {
  return in.layout.inner == 1 &&
         in.layout.columns <= (in.dtype == DType::float32 ? 7 : kTransposedColumns);
}

// Rows [begin, end) along the last dimension, in one pass.
WARPFUSE_DECLARE_CPU_KERNEL(dropout_softmax_rows_cpu, DropoutSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(dropout_softmax_backward_rows_cpu, DropoutSoftmaxBackwardArguments)

// Along another dimension dropout is a kernel of its own, over the elements [begin, end), beside
// the softmax of rows [begin, end). Row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(drop_elements_cpu, DropElementsArguments)
WARPFUSE_DECLARE_CPU_KERNEL(strided_softmax_cpu, ScaledSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(strided_softmax_backward_cpu, DropoutSoftmaxBackwardArguments)

// Elements [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(mark_elements_cpu, DropoutMaskArguments)

}  // namespace warpfuse
