#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "core/kernel.h"
#include "skinny_linear/skinny_linear.h"

namespace warpfuse {

/// A linear layer whose weight [outputs, columns] is contiguous.
struct StepLinear {
  const void* weight;
  const void* bias;  // [outputs]
};

/// A layer of GPT-2. The qkv outputs are [H, 3, D].
struct StepLayer {
  const void *norm_1_weight, *norm_1_bias;  // [width]
  StepLinear qkv;                           // width to 3 * width
  StepLinear projection;                    // width to width
  const void *norm_2_weight, *norm_2_bias;
  StepLinear inner;  // width to inner
  StepLinear outer;  // inner to width
};

/// What one kernel takes: GPT-2's smallest model. Larger batches are as fast by the operators.
inline constexpr int kMaxStepRows = 4, kMaxStepLayers = 24, kMaxStepHeadDim = 128;
inline constexpr int kMaxStepWidth = 768, kMaxStepInner = 3072;

/// A greedy decode step of GPT-2 in one kernel. All tensors but the cache are contiguous.
struct Gpt2StepArguments {
  const int64_t* ids;              // [rows]
  const int64_t* positions;        // [rows]
  const void* token_embedding;     // [tokens, width]
  const void* position_embedding;  // [contexts, width]
  const void *norm_weight, *norm_bias;
  const void* head;  // [outputs, width]
  int64_t* next;     // [rows]
  void* cache;       // [layers, 2, rows, heads, slots, head_dim]; the last dimension is dense
  int64_t cache_strides[5];
  DType dtype;
  Activation activation;
  float epsilon, scale, inverse_width;
  int rows, layers, width, inner, heads, head_dim, slots;
  int tokens, contexts, outputs;
  StepLayer layer[kMaxStepLayers];
};

/// Whether launch_cuda() takes these: on a GPU with Hopper's bulk copies.
bool fits_gpt2_step_cuda(const Gpt2StepArguments& arguments);

cudaError_t launch_cuda(const Gpt2StepArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

}  // namespace warpfuse
