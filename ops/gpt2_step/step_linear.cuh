#pragma once

#include "gpt2_step/step_input.cuh"
#include "skinny_linear/ranked_output.cuh"

namespace warpfuse::cuda {

/// A warp's sums of a tile.
template <typename T>
class StepSums {
 public:
  __device__ explicit StepSums(int rows) : rows_(rows), sums_(rows) {}

  /// One step: the packs `pack` of the input's rows, and one of weights at a shared address, unless
  /// the rows end before.
  __device__ __forceinline__ void add(const StepInput<T>& input, unsigned weights, int pack,
                                      bool has) {
    const bool has_row = has && quad() < rows_;
    const uint4 rows[] = {has_row ? load_shared_16_bytes(input.at(quad(), pack)) : uint4()};
    sums_.add(rows, has ? load_shared_16_bytes(weights) : uint4());
  }

  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    sums_.each([&](int, int row, int column, float sum) { visit(row, column, sum); });
  }

 private:
  int rows_;
  TileSums<T, 1> sums_;
};

/// The same by multiply-adds: a lane has a pack of each row.
template <>
class StepSums<float> {
 public:
  __device__ explicit StepSums(int rows) : rows_(rows) {}

  __device__ __forceinline__ void add(const StepInput<float>& input, unsigned weights, int pack,
                                      bool has) {
    float w[4];
    unpack<float>(has ? load_shared_16_bytes(weights) : uint4(), w);
#pragma unroll
    for (int row = 0; row < kMaxStepRows; ++row) {
      if (row < rows_ && has) {
        float x[4];
        unpack<float>(load_shared_16_bytes(input.at(row, pack)), x);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums_[row] = fmaf(x[i], w[i], sums_[row]);
        }
      }
    }
  }

  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
#pragma unroll
    for (int row = 0; row < kMaxStepRows; ++row) {
      if (row < rows_) {
        const float sum = quad_sum(sums_[row]);
        if (quad_rank() == row) {
          visit(row, quad(), sum);
        }
      }
    }
  }

 private:
  int rows_;
  float sums_[kMaxStepRows] = {};
};

/// The products, as the warps that compute see them: sums of this block's tiles, each by all warps.
/// The code is short and runs for every product: a layer must fit the instruction cache.
template <typename T>
class StepLinears {
 public:
  __device__ StepLinears(const Gpt2StepArguments& a, StepShared& shared, unsigned stages,
                         unsigned rows)
      : a_(a), shared_(shared), input_(a, rows), cursor_(shared.ring, stages) {}

  __device__ __forceinline__ void run(const StepProduct& product) {
    const int tiles = product.tiles(), packs = product.packs;
    if (turns_.has(tiles)) {
      input_.fill(product);
      for (; turns_.has(tiles); turns_.advance()) {
        multiply(packs);
      }
    }
    turns_.end_product(tiles);
  }

 private:
  /// This warp's part of the current tile, to its sums.
  __device__ __forceinline__ void multiply(int packs) {
    StepSums<T> sums(a_.rows);
#pragma unroll 1
    for (int first = 0; first < packs; first += kChunkPacks) {
      cursor_.consumer_wait();
#pragma unroll
      for (int step = 0; step < kChunkSteps; ++step) {
        const int pack = (step * kStepWarps + step_warp()) * kQuad + quad_rank();
        const unsigned weights = cursor_.stage() + quad() * kStageRowBytes + pack * 16;
        sums.add(input_, weights, first + pack, first + pack < packs);
      }
      __syncwarp();
      if (step_lane() == 0) {
        cursor_.consumer_release();
      }
      cursor_.advance();
    }
    sums_.wait_empty(shared_);
    sums.each([&](int row, int column, float sum) {
      if (row < a_.rows) {
        shared_.sums[sums_.buffer()][row].outputs[column].of[step_warp()] = sum;
      }
    });
    __syncwarp();
    if (step_lane() == 0) {
      shared_.sums_full[sums_.buffer()].arrive();
    }
    sums_.advance();
  }

  const Gpt2StepArguments& a_;
  StepShared& shared_;
  StepInput<T> input_;
  RingCursor<WeightRing> cursor_;
  SumsCursor sums_;
  TileTurns turns_;
};

}  // namespace warpfuse::cuda
