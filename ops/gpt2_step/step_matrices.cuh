#pragma once

#include "gpt2_step/gpt2_step.h"
#include "rowwise/cuda/pack.cuh"
#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {

// The step's matrix products, in their order, and which block computes which outputs.

// Warps of a block: kStepWarps that compute, one that copies weights, and those that finish tiles.
inline constexpr int kStepWarps = 12, kCopyWarp = kStepWarps, kFirstFinishWarp = kStepWarps + 1;
inline constexpr int kFinishWarps = 3;
inline constexpr int kStepThreads = (kFirstFinishWarp + kFinishWarps) * 32;
inline constexpr int kSumsBuffers = 4;  // of tiles that were computed and are not finished
/// A chunk of a weight's row: kChunkSteps steps (tile_product.cuh) of each warp.
inline constexpr int kChunkSteps = 2;
inline constexpr int kChunkPacks = kStepWarps * kChunkSteps * kQuad;
/// The products of a layer.
enum StepProductIndex { kQkv, kProjection, kInner, kOuter, kProducts };
inline constexpr int kMaxStepProducts = kMaxStepLayers * kProducts + 1;  // and the head

/// output = activation(norm(input) weight^T + bias + residual), as it lies in shared memory.
struct alignas(16) StepProduct {
  const void* weight;                   // [outputs, packs], contiguous
  const void* bias;                     // [outputs]; null for the head
  const void *norm_weight, *norm_bias;  // [packs]; null: no norm
  const void* input;                    // [rows, packs]
  const void* residual;                 // [rows, outputs] or null
  void* output;                         // [rows, outputs]; null for the head
  int outputs, packs;
  Activation activation;

  __device__ int tiles() const { return (outputs + kTileOutputs - 1) / kTileOutputs; }
  __device__ int chunks() const { return (packs + kChunkPacks - 1) / kChunkPacks; }
  __device__ int chunk_packs(int chunk) const {
    return min(kChunkPacks, packs - chunk * kChunkPacks);
  }
};

/// Tiles of 8 outputs are dealt out to the blocks in turn, across products, so that the blocks read
/// the same number of weights in the end.
class TileTurns {
 public:
  /// Whether this block has a tile of the product left, of `tiles`.
  __device__ bool has(int tiles) const { return turn_ < first_ + tiles; }
  __device__ int tile() const { return turn_ - first_; }
  __device__ void advance() { turn_ += static_cast<int>(gridDim.x); }
  __device__ void end_product(int tiles) { first_ += tiles; }

 private:
  int turn_ = static_cast<int>(blockIdx.x), first_ = 0;
};

}  // namespace warpfuse::cuda
