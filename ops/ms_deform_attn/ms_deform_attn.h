#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "common/host_device.h"
#include "core/kernel.h"

namespace warpfuse {

/// Sizes of one call. pixels are those of all levels, fewer than 2^31.
struct MsDeformAttnSizes {
  int64_t batches, pixels, heads, channels, queries, levels, points;

  WARPFUSE_HOST_DEVICE int64_t rows() const { return batches * queries * heads; }
  WARPFUSE_HOST_DEVICE int64_t row_points() const { return levels * points; }
  /// Below 2^27, so that bytes are int.
  WARPFUSE_HOST_DEVICE int pixel_elements() const { return static_cast<int>(heads * channels); }
  /// The first element of a batch and head in the value.
  WARPFUSE_HOST_DEVICE int64_t value_offset(int64_t batch, int64_t head) const {
    return (batch * pixels * heads + head) * channels;
  }
};

/// Per row (batch, query, head): output = sum over points of weight * value sampled at location.
struct MsDeformAttnInputs {
  const void* value;                 // [batches, pixels, heads, channels]
  const int64_t* spatial_shapes;     // [levels, 2], height and width
  const int64_t* level_start_index;  // [levels]
  const void* sampling_locations;    // [batches, queries, heads, levels, points, 2], x and y
  const void* attention_weights;     // [batches, queries, heads, levels, points]
  DType dtype, location_dtype, weight_dtype;
  MsDeformAttnSizes sizes;
  bool softmax;  // of a row's attention_weights, which are logits
};

struct MsDeformAttnArguments {
  MsDeformAttnInputs inputs;
  void* output;  // [batches, queries, heads, channels]
};

/// Gradients from the gradient of the output.
struct MsDeformAttnBackwardArguments {
  MsDeformAttnInputs inputs;
  const void* grad_output;  // as output
  const void* output;       // of the forward; only with softmax
  void* grad_value;         // as value, float32 (float64 for float64 values)
  void* grad_locations;     // as sampling_locations
  void* grad_weights;       // as attention_weights
  // CUDA only, null or as grad_value: finite terms are added here, times *fixed_scale, as integers,
  // whose sum does not depend on their order.
  int64_t* fixed_grad_value;
  const double* fixed_scale;
};

void launch_cpu(const MsDeformAttnArguments& arguments);
void launch_cpu(const MsDeformAttnBackwardArguments& arguments);
cudaError_t launch_cuda(const MsDeformAttnArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_cuda(const MsDeformAttnBackwardArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

// --- the CPU kernels, once per instruction set ------------------------------------------------

// Rows [begin, end) of [batches, queries, heads].
WARPFUSE_DECLARE_CPU_KERNEL(ms_deform_attn_rows_cpu, MsDeformAttnArguments)
// Tasks [begin, end) of [batches, heads, levels]. No two tasks write the same gradient.
WARPFUSE_DECLARE_CPU_KERNEL(ms_deform_attn_backward_cpu, MsDeformAttnBackwardArguments)

}  // namespace warpfuse
