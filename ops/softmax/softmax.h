#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "core/kernel.h"
#include "rowwise/layout.h"

namespace warpfuse {

/// output = softmax(input) or log_softmax(input) along the columns of `layout`.
struct SoftmaxArguments {
  const void* input;  // [outer, columns, inner]
  void* output;       // [outer, columns, inner], may be the input
  DType dtype;
  RowLayout layout;
  bool log;
  int gap = 0;  // elements of memory behind each row of the input, on CUDA
};

/// grad_input from grad_output and the forward's output, all [outer, columns, inner].
struct SoftmaxBackwardArguments {
  const void* grad_output;
  const void* output;
  void* grad_input;  // may be grad_output or output
  DType dtype;
  RowLayout layout;
  bool log;
};

/// The forward by one algorithm: naive, warp, block, cluster or stream on CUDA, naive or vector on
/// the CPU. An algorithm that is unknown or cannot take the shape runs nothing and says in *refusal
/// which ones are expected.
struct SoftmaxAlgorithmArguments {
  SoftmaxArguments softmax;
  std::string_view algorithm;
  std::string* refusal;
};

// On CUDA the workspace is asked for memory only where a row is split over blocks without a
// cluster.
void launch_cpu(const SoftmaxArguments& arguments);
void launch_cpu(const SoftmaxBackwardArguments& arguments);
void launch_cpu(const SoftmaxAlgorithmArguments& arguments);
cudaError_t launch_cuda(const SoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const SoftmaxBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const SoftmaxAlgorithmArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

/// softmax(scale * input) along the last dimension, without log, and its gradient: for attention
/// that hides no key. The forward's scale is one of scales_differences(), in loads.cuh.
cudaError_t launch_scaled_softmax(const SoftmaxArguments& arguments, double scale,
                                  Workspace& workspace, cudaStream_t stream);
cudaError_t launch_scaled_softmax(const SoftmaxBackwardArguments& arguments, double scale,
                                  Workspace& workspace, cudaStream_t stream);

// --- the CPU kernels, once per instruction set ------------------------------------------------

/// Rows along the last dimension from `first_row` on, each cut into parts, so that several threads
/// share a row and a row need not fit a cache. Part p is the part p % parts_per_row of the row
/// first_row + p / parts_per_row.
template <typename Arguments>
struct SplitRows {
  const Arguments& arguments;
  int64_t first_row;
  int64_t part_columns;
  int64_t parts_per_row;
  PartialSoftmax* parts;  // of these rows: [rows * parts_per_row]
  PartialSoftmax* rows;   // [rows]
};

// Rows [begin, end) of a tensor; row r is column r % inner of block r / inner.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_rows_cpu, SoftmaxArguments)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_rows_cpu, SoftmaxBackwardArguments)

// Parts [begin, end): the first kernel fills `parts`, the second writes results from `rows`.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_parts_cpu, SplitRows<SoftmaxArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_part_results_cpu, SplitRows<SoftmaxArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_parts_cpu, SplitRows<SoftmaxBackwardArguments>)
WARPFUSE_DECLARE_CPU_KERNEL(softmax_backward_part_results_cpu, SplitRows<SoftmaxBackwardArguments>)

/// The plain algorithm without vectors: three loops over a row.
WARPFUSE_DECLARE_CPU_KERNEL(softmax_naive_rows_cpu, SoftmaxArguments)

}  // namespace warpfuse
