#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "core/kernel.h"

namespace warpfuse {

enum class Norm { none, layer, rms };
enum class Activation { none, gelu, gelu_tanh };

/// The rows of the kernels for few rows: a tile of the tensor cores.
inline constexpr int64_t kMaxSkinnyRows = 16;
/// The rows of those for more, on a GPU in half precision.
inline constexpr int64_t kMaxTiledRows = 128;

/// output = activation(norm(input) weight^T + bias) + residual, float32, float16 or bfloat16.
struct SkinnyLinearArguments {
  const void* input;        // [rows, columns]
  const void* norm_weight;  // [columns] or null
  const void* norm_bias;    // [columns] or null
  const void* weight;       // [outputs, columns], row n starts n * weight_stride elements after it
  const void* bias;         // [outputs] or null
  const void* residual;     // [rows, outputs] or null
  void* output;             // [rows, outputs]
  int64_t* tokens;          // [rows]: the largest output of each row, in place of `output`; or null
  DType dtype;
  Norm norm;
  Activation activation;
  float epsilon;
  int64_t rows;
  int64_t columns;
  int64_t outputs;
  int64_t weight_stride;
};

/// Whether launch_cuda() takes these: up to 128 rows, and packs of 16 bytes that are aligned.
bool fits_skinny_linear_cuda(const SkinnyLinearArguments& arguments);

void launch_cpu(const SkinnyLinearArguments& arguments);
cudaError_t launch_cuda(const SkinnyLinearArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

}  // namespace warpfuse
