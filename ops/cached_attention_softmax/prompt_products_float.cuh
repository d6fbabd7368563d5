#pragma once

#include "cached_attention_softmax/prompt_products.cuh"

namespace warpfuse::cuda {

/// The upper and the lower part of a number, each of 11 bits. Their products with those of another
/// one, but for that of both lower parts, have the precision of float32.
struct SplitTf32 {
  unsigned high, low;

  __device__ __forceinline__ explicit SplitTf32(float x) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
  }
};

__device__ __forceinline__ void mma_16x8x8(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2,
                                           unsigned a3, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The same in float32. The elements of an instruction may be any, as long as they are the same in
/// both operands: each lane takes neighbouring ones.
template <int kDim>
class PromptProducts<float, kDim> {
 public:
  using T = float;
  static constexpr int kHeadDim = kDim;
  static constexpr int kRowBytes = kDim * 4;
  static constexpr int kQueryBytes = kDim * 2;  // of shared memory, per thread

  __device__ explicit PromptProducts(unsigned memory)
      : queries_(memory + static_cast<int>(threadIdx.x) / 32 * (32 * kQueryBytes) +
                 static_cast<int>(threadIdx.x) % 32 * 16) {}

  /// No bank conflicts for both products: two rows of four chunks, and four rows of two chunks.
  __device__ static int offset(int row, int chunk) {
    return row * (kDim * 4) + (chunk ^ (row % 2 * 4) ^ (row / 2 % 4 * 2)) * 16;
  }

  __device__ void load(const float* query, int64_t stride, int count, int elements) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = query_row(i);
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        const int element = 16 * step + 4 * quad_rank();
        copy_16_bytes_or_zeros(query_at(step, i), query + row * stride + element,
                               row < count && element < elements);
      }
    }
  }

  __device__ void scores(float (&s)[kTileSlots / 8][4], unsigned keys) const {
#pragma unroll
    for (int i = 0; i < kTileSlots / 8; ++i) {
#pragma unroll
      for (float& score : s[i]) {
        score = 0;
      }
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      float q[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unpack<float>(load_shared_16_bytes(query_at(step, i)), q[i]);
      }
      const SplitTf32 a[2][4] = {
          {SplitTf32(q[0][0]), SplitTf32(q[1][0]), SplitTf32(q[0][1]), SplitTf32(q[1][1])},
          {SplitTf32(q[0][2]), SplitTf32(q[1][2]), SplitTf32(q[0][3]), SplitTf32(q[1][3])}};
#pragma unroll
      for (int first = 0; first < kTileSlots / 8; first += kInterleaved) {
        float key[kInterleaved][4];
#pragma unroll
        for (int i = 0; i < kInterleaved; ++i) {
          unpack<float>(
              load_shared_16_bytes(keys + offset(8 * (first + i) + quad(), 4 * step + quad_rank())),
              key[i]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float b[2][kInterleaved];
#pragma unroll
          for (int i = 0; i < kInterleaved; ++i) {
            b[0][i] = key[i][2 * half];
            b[1][i] = key[i][2 * half + 1];
          }
          multiply_add(s + first, a[half], b);
        }
      }
    }
  }

  __device__ void add_values(float (&o)[kDim / 8][4], const float (&by)[2],
                             const float (&p)[kTileSlots / 8][4], unsigned values) const {
    // A tile's sums are added to those of the others in float32: tensor cores truncate.
    float sums[kDim / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kTileSlots / 8; ++step) {
      const SplitTf32 a[4] = {SplitTf32(p[step][0]), SplitTf32(p[step][2]), SplitTf32(p[step][1]),
                              SplitTf32(p[step][3])};
#pragma unroll
      for (int part = 0; part < kDim / 32; ++part) {
        float value[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          unpack<float>(load_shared_16_bytes(
                            values + offset(8 * step + 2 * quad_rank() + i, 8 * part + quad())),
                        value[i]);
        }
        multiply_add(sums + 4 * part, a, value);
      }
    }
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        o[i][j] = fmaf(o[i][j], by[j / 2], sums[i][j]);
      }
    }
  }

  __device__ static void store(const float (&o)[kDim / 8][4], int i, float factor, float* row,
                               int elements, bool wanted) {
#pragma unroll
    for (int part = 0; part < kDim / 32; ++part) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = 32 * part + 8 * quad_rank() + 4 * j;
        if (wanted && column < elements) {
          const float values[] = {
              o[4 * part][2 * i + j] * factor, o[4 * part + 1][2 * i + j] * factor,
              o[4 * part + 2][2 * i + j] * factor, o[4 * part + 3][2 * i + j] * factor};
          store_16_bytes(row + column, pack_bits<float>(values));
        }
      }
    }
  }

 private:
  static constexpr int kInterleaved = 4;  // independent sums

  /// Adds the products of a and each column of b to the sums; the smallest first.
  __device__ __forceinline__ static void multiply_add(float (*sums)[4], const SplitTf32 (&a)[4],
                                                      const float (&b)[2][kInterleaved]) {
    unsigned high[2][kInterleaved], low[2][kInterleaved];
#pragma unroll
    for (int i = 0; i < kInterleaved; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const SplitTf32 split(b[j][i]);
        high[j][i] = split.high;
        low[j][i] = split.low;
      }
    }
#pragma unroll
    for (int i = 0; i < kInterleaved; ++i) {
      mma_16x8x8(sums[i], a[0].low, a[1].low, a[2].low, a[3].low, high[0][i], high[1][i]);
    }
#pragma unroll
    for (int i = 0; i < kInterleaved; ++i) {
      mma_16x8x8(sums[i], a[0].high, a[1].high, a[2].high, a[3].high, low[0][i], low[1][i]);
    }
#pragma unroll
    for (int i = 0; i < kInterleaved; ++i) {
      mma_16x8x8(sums[i], a[0].high, a[1].high, a[2].high, a[3].high, high[0][i], high[1][i]);
    }
  }

  __device__ unsigned query_at(int step, int row) const {
    return queries_ + (2 * step + row) * (32 * 16);
  }

  unsigned queries_;  // this lane's, in shared memory: registers are few
};

}  // namespace warpfuse::cuda
