#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dropout.h"
#include "common/dtype.h"
#include "core/kernel.h"
#include "rowwise/cpu/limits.h"
#include "rowwise/key_mask.h"

namespace warpfuse {

// scaled_masked_softmax, and scaled_masked_softmax_dropout, which drops its output.

/// The rows [B * H * Tq, Tk] of all tensors, and which keys of a row are visible.
struct MaskedRows {
  DType dtype;
  int64_t rows;
  double scale;
  KeyRules rules;
  MaskView mask;
};

/// output = softmax(scores * scale + mask). The output may be the scores.
struct MaskedSoftmaxArguments : MaskedRows {
  const void* scores;
  void* output;
  int gap = 0;  // elements of memory behind each row of the scores, on CUDA
};

/// grad_scores from grad_output and the forward's output.
struct MaskedSoftmaxBackwardArguments : MaskedRows {
  const void* grad_output;
  const void* output;
  void* grad_scores;  // may be grad_output or output
};

/// output = softmax(scores * scale + mask) * keep * dropout.scale.
struct MaskedSoftmaxDropoutArguments : MaskedRows {
  const void* scores;
  void* output;
  void* statistics;  // [rows, 2] or null: the maximum m of x = scores * scale + mask, and
                     // log(sum(exp(x - m)))
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2] or null
};

/// grad_scores from grad_output, the scores and their statistics.
struct MaskedSoftmaxDropoutBackwardArguments : MaskedRows {
  const void* grad_output;
  const void* scores;
  const void* statistics;
  void* grad_scores;  // may be grad_output or scores
  Dropout dropout;
  RngSource rng;
};

void launch_cpu(const MaskedSoftmaxArguments& arguments);
void launch_cpu(const MaskedSoftmaxBackwardArguments& arguments);
void launch_cpu(const MaskedSoftmaxDropoutArguments& arguments);
void launch_cpu(const MaskedSoftmaxDropoutBackwardArguments& arguments);
cudaError_t launch_cuda(const MaskedSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const MaskedSoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const MaskedSoftmaxDropoutArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const MaskedSoftmaxDropoutBackwardArguments& arguments,
                        Workspace& workspace, cudaStream_t stream);

/// Whether the CPU transposes blocks of rows. The backward needs little of a mask, unless it is
/// boolean.
inline bool is_transposed(const MaskedRows& in) { return in.rules.keys <= kTransposedColumns; }
inline bool is_transposed(const MaskedSoftmaxBackwardArguments& in) {
  return in.rules.keys <= (in.mask.kind == MaskKind::boolean ? kTransposedColumns : 7);
}

// The CPU kernels, once per instruction set: rows [begin, end).
WARPFUSE_DECLARE_CPU_KERNEL(masked_rows_cpu, MaskedSoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_rows_cpu, MaskedSoftmaxBackwardArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_rows_cpu, MaskedSoftmaxDropoutArguments)
WARPFUSE_DECLARE_CPU_KERNEL(masked_rows_cpu, MaskedSoftmaxDropoutBackwardArguments)

}  // namespace warpfuse
