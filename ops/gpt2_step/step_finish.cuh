#pragma once

#include "gpt2_step/step_input.cuh"
#include "skinny_linear/ranked_output.cuh"

namespace warpfuse::cuda {

/// The products, as the warps that finish them see them: they add up the sums of the other warps,
/// bias and residual, and publish the results. The warps take the block's tiles in turn.
template <typename T>
class StepFinish {
 public:
  __device__ StepFinish(const Gpt2StepArguments& a, StepShared& shared)
      : a_(a), shared_(shared), warp_(step_warp() - kFirstFinishWarp) {}

  __device__ __forceinline__ void run(const StepProduct& product) {
    const int tiles = product.tiles();
    for (; turns_.has(tiles); turns_.advance()) {
      if (warp_ == 0) {
        finish(product, turns_.tile());
      }
      warp_ = warp_ == 0 ? kFinishWarps - 1 : warp_ - 1;
      sums_.advance();
    }
    turns_.end_product(tiles);
  }

  /// The head's best output, to that of other warps.
  __device__ void join_best() const {
    if (row() < a_.rows) {
      atomicMax(&shared_.best[row()], best_);
    }
  }

 private:
  // A lane has one result of a tile.
  static_assert(kMaxStepRows * kTileOutputs == 32);
  __device__ static int row() { return step_lane() / kTileOutputs; }
  __device__ static int column() { return step_lane() % kTileOutputs; }

  __device__ __forceinline__ void finish(const StepProduct& product, int tile) {
    const int output = tile * kTileOutputs + column(), index = row() * product.outputs + output;
    const bool is_result = row() < a_.rows && output < product.outputs;
    float bias = 0, residual = 0;
    if (is_result && product.bias != nullptr) {
      bias = to_compute(static_cast<const T*>(product.bias)[output]);
    }
    if (is_result && product.residual != nullptr) {
      residual = await_element(static_cast<const T*>(product.residual) + index);
    }
    shared_.sums_full[sums_.buffer()].wait(sums_.parity());
    const float sum = shared_.sums[sums_.buffer()][row()].outputs[column()].total() + bias;
    __syncwarp();
    if (step_lane() == 0) {
      shared_.sums_empty[sums_.buffer()].arrive();
    }
    if (product.output != nullptr) {
      publish(is_result, static_cast<T*>(product.output) + index,
              activated(sum, product.activation) + residual);
    } else if (is_result) {
      best_ = max(best_, ranked(key_of(from_compute<T>(sum)), output));
    }
  }

  const Gpt2StepArguments& a_;
  StepShared& shared_;
  SumsCursor sums_;
  TileTurns turns_;
  int warp_;  // tiles until this warp's next one
  unsigned long long best_ = 0;
};

}  // namespace warpfuse::cuda
