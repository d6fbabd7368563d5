#pragma once

#include "hopper/wgmma.cuh"
#include "linear_dropout_softmax/split_float.cuh"
#include "linear_dropout_softmax/tile_product.cuh"

namespace warpfuse::cuda {

/// A TileProduct of split float32: the tile is made transposed, with the weight's pieces as wgmma's
/// first operand, from registers.
class SplitProduct : public TileProduct<float> {
 public:
  static constexpr int kInputStepElements = kSplitElements;  // pieces

  /// Whole groups, of two stages of either ring.
  __device__ static int steps(int inner) { return 2 * split_groups(inner); }

  /// As TileProduct::multiply(). scales: [rows], see split_input_kernel(); tile:
  /// [kTileRows][kTileStride] in shared memory, where the stages may be.
  template <int kBlocks>
  __device__ void multiply(RingCursor<InputRing> input, RingCursor<WeightRing> weight, int steps,
                           const float* scales, int rows, float* tile) {
    const unsigned lane = threadIdx.x % 32;
    float sums[kRows][kColumns] = {};
    for (int step = 0; step < steps; step += 2) {
      unsigned high[kGroups][4], low[kGroups][4];
      float unscale[kRows];
      load_weight(weight, high, low, unscale);

      RingCursor<InputRing> low_input = input;
      low_input.advance();
      input.consumer_wait();
      low_input.consumer_wait();
      const uint64_t b_high = wgmma_operand(input.stage());
      const uint64_t b_low = wgmma_operand(low_input.stage());
      float products[kRows][kColumns];
      pin(high);
      pin(low);
      wgmma_begin();
      // The small products first: each addition cuts off what is below the last bit of the sum.
      constexpr int kUnits = kInstructionBytes / kOperandUnit;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (group == 0) {
          multiply_group<false>(products, low[group], b_high);
        } else {
          multiply_group<true>(products, low[group], b_high + group * kUnits);
        }
        multiply_group<true>(products, high[group], b_low + group * kUnits);
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiply_group<true>(products, high[group], b_high + group * kUnits);
      }
      wgmma_end();
      wgmma_wait();
      pin(high);  // the products read them until here
      pin(low);
      pin(products);
      if (lane < kBlocks) {
        input.consumer_release(lane);
        low_input.consumer_release(lane);
      }
      input = low_input;
      input.advance();
      // Here sums are rounded to nearest.
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sums[i][j] = fmaf(products[i][j], unscale[i], sums[i][j]);
        }
      }
    }
    transpose(sums, scales, rows, tile);
  }

  static constexpr int kTileStride = kTileColumns + 4;  // so that quads meet different banks

 private:
  static constexpr int kGroups = kSplitElements / 16;  // of an instruction's depth

  /// The row of the weight's tile that this lane has as row(i) of the product. Neighbouring quads
  /// read rows 4 apart, whose chunks lie in different halves of the banks.
  __device__ static int weight_row(int i) {
    const int quad = threadIdx.x % 32 / 4;
    return threadIdx.x / 32 * 16 + quad / 2 + quad % 2 * 4 + 8 * i;
  }

  /// Takes kSplitElements of this lane's rows from the ring, splits them, and releases the stages.
  __device__ __forceinline__ static void load_weight(RingCursor<WeightRing>& weight,
                                                     unsigned (&high)[kGroups][4],
                                                     unsigned (&low)[kGroups][4],
                                                     float (&unscale)[kRows]) {
    const unsigned lane = threadIdx.x % 32, rank = lane % 4;
    float4 w[kRows][kGroups];
#pragma unroll
    for (int stage = 0; stage < 2; ++stage) {
      weight.consumer_wait();
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const unsigned row = weight_row(i);
#pragma unroll
        for (unsigned group = 0; group < 2; ++group) {
          const unsigned chunk = (4 * group + rank) ^ row % 8;
          const uint4 bits =
              load_shared_16_bytes(weight.stage() + row * kOperandRowBytes + chunk * sizeof(bits));
          w[i][2 * stage + group] = reinterpret_cast<const float4&>(bits);
        }
      }
      __syncwarp();
      if (lane == 0) {
        weight.consumer_release();
      }
      weight.advance();
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float largest = 0;
#pragma unroll
      for (const float4& x : w[i]) {
        largest = max_magnitude(x, largest);
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const int exponent = scale_exponent(largest);
      const float scale = split_scale(exponent);
      // The input's scale is left in the sums, whose size is then that of the weight.
      unscale[i] = power_of_two(exponent - 2 * (kScaledExponent - 127));
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const float4& x = w[i][group];
        const SplitPair first(x.x * scale, x.y * scale), second(x.z * scale, x.w * scale);
        high[group][i] = first.high;
        high[group][i + 2] = second.high;
        low[group][i] = first.low;
        low[group][i + 2] = second.low;
      }
    }
  }

  template <bool kAdds>
  __device__ __forceinline__ static void multiply_group(float (&v)[kRows][kColumns],
                                                        const unsigned (&a)[4], uint64_t b) {
    if constexpr (kAdds) {
      WARPFUSE_WGMMA_64X128("k16.f32.f16.f16", "+f", v, "{%64, %65, %66, %67}, %68, 1, 1, 1, 0",
                            "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else {
      WARPFUSE_WGMMA_64X128("k16.f32.f16.f16", "=f", v, "{%64, %65, %66, %67}, %68, 0, 1, 1, 0",
                            "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
  }

  __device__ __forceinline__ void transpose(const float (&sums)[kRows][kColumns],
                                            const float* scales, int rows, float* tile) {
    sync();  // all have read their stages
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        tile[column(j) * kTileStride + weight_row(i)] = sums[i][j];
      }
    }
    sync();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float scale = row(i) < rows ? scales[row(i)] : 0.0f;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        values[i][j] = tile[row(i) * kTileStride + column(j)] * scale;
      }
    }
  }
};

}  // namespace warpfuse::cuda
