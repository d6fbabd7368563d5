#pragma once

#include "gpt2_step/step_matrices.cuh"
#include "hopper/ring.cuh"
#include "hopper/tma.cuh"

namespace warpfuse::cuda {

// A stage holds a chunk of a tile's 8 rows of weights. The rows' addresses differ by half of all
// banks, so that 8 lanes read packs of two rows without a conflict.
inline constexpr int kStageRowBytes = kChunkPacks * 16 + 64;
using WeightRing = Ring<12, kTileOutputs * kStageRowBytes>;

/// The copies of this block's weights to the ring, in the order of the products: by all lanes of
/// one warp. They depend on nothing that the step computes, so they run ahead of it as far as the
/// ring has room, through the waits between products.
class WeightStream {
 public:
  __device__ WeightStream(const StepProduct* products, int count, WeightRing& ring, unsigned stages,
                          uint64_t policy)
      : product_(products), end_(products + count), cursor_(ring, stages), policy_(policy) {}

  /// Starts at most `copies` copies, each once a stage is empty.
  __device__ void copy(int copies) {
    while (copies > 0 && product_ != end_) {
      if (turns_.has(product_->tiles())) {
        copy_chunk();
        --copies;
      } else {
        turns_.end_product(product_->tiles());
        ++product_;
      }
    }
  }

 private:
  __device__ void copy_chunk() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = turns_.tile() * kTileOutputs;
    const int rows = min(kTileOutputs, product_->outputs - first);
    const int bytes = product_->chunk_packs(chunk_) * 16;
    cursor_.producer_wait();
    if (lane == 0) {
      cursor_.full().arrive_expect_bytes(rows * bytes);
    }
    __syncwarp();
    if (lane < rows) {
      const auto* const row = static_cast<const uint4*>(product_->weight) +
                              int64_t{first + lane} * product_->packs + chunk_ * kChunkPacks;
      bulk_load(cursor_.stage() + lane * kStageRowBytes, row, bytes, cursor_.full(), policy_);
    }
    cursor_.advance();
    if (++chunk_ == product_->chunks()) {
      chunk_ = 0;
      turns_.advance();
    }
  }

  const StepProduct *product_, *end_;
  RingCursor<WeightRing> cursor_;
  uint64_t policy_;
  TileTurns turns_;
  int chunk_ = 0;
};

}  // namespace warpfuse::cuda
