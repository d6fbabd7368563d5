#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cached_attention_softmax/prompt_slots.cuh"
#include "cached_attention_softmax/prompt_softmax.cuh"
#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {

// The two products of attention on tensor cores. A warp has 16 queries: of each 8 columns of a
// product a lane holds elements 2c and 2c + 1 of the rows g and g + 8, where g is its quad and c
// its rank there. Scores come and weights go in that form, so they never leave the registers.

/// A lane's first or second row among the block's queries.
__device__ __forceinline__ int query_row(int i) {
  return static_cast<int>(threadIdx.x) / 32 * kWarpQueries + quad() + 8 * i;
}

template <bool kTransposed>
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned shared) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared));
  }
}

/// Products of heads of up to kHeadDim elements.
template <typename Element, int kDim>
class PromptProducts {
 public:
  using T = Element;
  static constexpr int kHeadDim = kDim;
  static constexpr int kRowBytes = 128;     // from row to row of a panel
  static constexpr int kQueryBytes = kDim;  // of shared memory, per thread

  __device__ explicit PromptProducts(unsigned memory)
      : queries_(memory + static_cast<int>(threadIdx.x) / 128 * (128 * kQueryBytes)) {}

  /// Where chunk `chunk` of 16 bytes of a row lies in a tile: panels of 64 elements, swizzled.
  __device__ static int offset(int row, int chunk) {
    return chunk / 8 * (kTileSlots * 128) + row * 128 + (chunk % 8 ^ row % 8) * 16;
  }

  /// Starts copies of the warp's rows of queries, of which `count` exist.
  __device__ void load(const T* query, int64_t stride, int count, int elements) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = query_row(i);
#pragma unroll
      for (int chunk = quad_rank(); chunk < kDim / 8; chunk += 4) {
        copy_16_bytes_or_zeros(queries_ + offset(row % 64, chunk), query + row * stride + chunk * 8,
                               row < count && chunk * 8 < elements);
      }
    }
  }

  __device__ void scores(float (&s)[kTileSlots / 8][4], unsigned keys) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kTileSlots / 8; ++i) {
#pragma unroll
      for (float& score : s[i]) {
        score = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      unsigned a[4];
      load_matrices<false>(
          a, queries_ + offset(static_cast<int>(threadIdx.x) / 32 % 4 * kWarpQueries + lane % 16,
                               2 * step + lane / 16));
#pragma unroll
      for (int pair = 0; pair < kTileSlots / 16; ++pair) {
        unsigned b[4];
        load_matrices<false>(
            b, keys + offset(16 * pair + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
        mma_16x8x16(s[2 * pair], a[0], a[1], a[2], a[3], b[0], b[1], T());
        mma_16x8x16(s[2 * pair + 1], a[0], a[1], a[2], a[3], b[2], b[3], T());
      }
    }
  }

  /// o = o by + p values, for each row its factor.
  __device__ void add_values(float (&o)[kDim / 8][4], const float (&by)[2],
                             const float (&p)[kTileSlots / 8][4], unsigned values) const {
    RowSoftmax::scale(o, by);
    unsigned a[kTileSlots / 16][4];
#pragma unroll
    for (int step = 0; step < kTileSlots / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[step][i] = pack_word(&p[2 * step + i / 2][i % 2 * 2], T());
      }
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 0; step < kTileSlots / 16; ++step) {
#pragma unroll
      for (int pair = 0; pair < kDim / 16; ++pair) {
        unsigned b[4];
        load_matrices<true>(b, values + offset(16 * step + lane % 16, 2 * pair + lane / 16));
        mma_16x8x16(o[2 * pair], a[step][0], a[step][1], a[step][2], a[step][3], b[0], b[1], T());
        mma_16x8x16(o[2 * pair + 1], a[step][0], a[step][1], a[step][2], a[step][3], b[2], b[3],
                    T());
      }
    }
  }

  /// Stores row `i` of this lane's two, times `factor`.
  __device__ static void store(const float (&o)[kDim / 8][4], int i, float factor, T* row,
                               int elements, bool wanted) {
    // Neighbouring lanes exchange pairs of two groups of 8 columns: each then stores 8 bytes.
    const int lane = quad_rank();
    const bool odd = lane % 2 != 0;
#pragma unroll
    for (int group = 0; group < kDim / 8; group += 2) {
      const float values[] = {o[group][2 * i] * factor, o[group][2 * i + 1] * factor,
                              o[group + 1][2 * i] * factor, o[group + 1][2 * i + 1] * factor};
      const unsigned low = pack_word(values, T()), high = pack_word(values + 2, T());
      const unsigned other = __shfl_xor_sync(~0u, odd ? low : high, 1);
      const int column = 8 * group + lane % 2 * 8 + lane / 2 * 4;
      if (wanted && column < elements) {
        *reinterpret_cast<uint2*>(row + column) =
            odd ? make_uint2(other, high) : make_uint2(low, other);
      }
    }
  }

 private:
  unsigned queries_;  // of this group, in shared memory
};

}  // namespace warpfuse::cuda
