#pragma once

#include "common/launch_chain.cuh"
#include "rowwise/cuda/pack.cuh"
#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

// A warp multiplies up to 16 rows with 8 outputs' weights. Four lanes (a quad) share a row of each
// operand: a step takes four neighbouring packs of 16 bytes of it, one per lane. Which of the
// packs' elements meet in one mma instruction does not matter, as long as it is the same in both
// operands, so packs go from memory to the tensor cores as they are.

inline constexpr int kTileOutputs = 8;
inline constexpr int kRowGroup = 8;  // rows of an operand: 32 lanes / 4
inline constexpr int kQuad = 4;

/// The quad of this lane: the row of the group, or the output of the tile, whose packs it holds.
__device__ __forceinline__ int quad() { return static_cast<int>(threadIdx.x) % 32 / kQuad; }
__device__ __forceinline__ int quad_rank() { return static_cast<int>(threadIdx.x) % kQuad; }

/// Sum over the four lanes of a quad.
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

__device__ __forceinline__ void mma_16x8x16(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2,
                                            unsigned a3, unsigned b0, unsigned b1, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_16x8x16(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2,
                                            unsigned a3, unsigned b0, unsigned b1, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The sums of a warp, by tensor cores in half precision.
template <typename T, int kRowGroups>
class TileSums {
 public:
  /// Rows of which a lane may hold sums.
  static constexpr int kSlots = kRowGroups;

  __device__ explicit TileSums(int /*rows*/) {}

  /// One step: a pack of each row group, and one of the weights.
  __device__ __forceinline__ void add(const uint4 (&x)[kRowGroups], const uint4& w) {
    const uint4 upper = kRowGroups == 2 ? x[kRowGroups - 1] : uint4();
    mma_16x8x16(sums_[0], x[0].x, upper.x, x[0].y, upper.y, w.x, w.y, T());
    mma_16x8x16(sums_[1], x[0].z, upper.z, x[0].w, upper.w, w.z, w.w, T());
  }

  /// Calls visit(slot, row, output, sum) for the sums that this lane holds.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < 2 * kRowGroups; ++i) {
      visit(i / 2, quad() + i / 2 * kRowGroup, 2 * quad_rank() + i % 2, sums_[0][i] + sums_[1][i]);
    }
  }

 private:
  float sums_[2][4] = {};  // of independent chains of instructions
};

/// The same in float32 by multiply-adds: a lane sums over its packs of one output for every row,
/// whose elements come from the lanes of the row's quad.
template <int kRowGroups>
class TileSums<float, kRowGroups> {
 public:
  static constexpr int kSlots = kRowGroup * kRowGroups;

  __device__ explicit TileSums(int rows) : rows_(rows) {}

  __device__ __forceinline__ void add(const uint4 (&x)[kRowGroups], const uint4& w) {
    float weights[4];
    unpack<float>(w, weights);
#pragma unroll
    for (int row = 0; row < kRowGroup * kRowGroups; ++row) {
      if (row < rows_) {
        float elements[4];
        unpack<float>(x[row / kRowGroup], elements);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int source = row % kRowGroup * kQuad + quad_rank();
          sums_[row] = fmaf(__shfl_sync(~0u, elements[i], source), weights[i], sums_[row]);
        }
      }
    }
  }

  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
#pragma unroll
    for (int row = 0; row < kRowGroup * kRowGroups; ++row) {
      if (row < rows_) {
        const float sum = quad_sum(sums_[row]);
        if (quad_rank() == row % kQuad) {
          visit(row, row, quad(), sum);
        }
      }
    }
  }

 private:
  int rows_;
  float sums_[kRowGroup * kRowGroups] = {};
};

__device__ __forceinline__ float activated(float x, Activation activation) {
  constexpr float kSqrtHalf = 0.70710678f, kSqrtTwoOverPi = 0.79788456f, kCubic = 0.044715f;
  switch (activation) {
    case Activation::gelu:
      return 0.5f * x * (1.0f + erff(x * kSqrtHalf));
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + tanhf(kSqrtTwoOverPi * (x + kCubic * x * x * x)));
    default:
      return x;
  }
}

/// An element of a vector or matrix that may be absent.
template <typename T>
__device__ __forceinline__ float element_or_zero(const void* data, int64_t index) {
  return data != nullptr ? to_compute(static_cast<const T*>(data)[index]) : 0.0f;
}

}  // namespace warpfuse::cuda
