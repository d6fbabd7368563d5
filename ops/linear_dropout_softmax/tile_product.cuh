#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "hopper/ring.cuh"
#include "hopper/tensor_map.h"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

// A block's tile of input weight^T: a producer thread per operand copies stages to shared memory by
// TMA, and two warpgroups multiply them with wgmma.

inline constexpr int kTileRows = 128, kTileColumns = 128;

/// A stage holds kOperandRowBytes of each row of an operand.
inline constexpr int kInputBytes = kTileRows * kOperandRowBytes;
inline constexpr int kWeightBytes = kTileColumns * kOperandRowBytes;
/// All blocks of a cluster have to release a stage of the input, so that ring is the longer one.
using InputRing = Ring<7, kInputBytes>;
using WeightRing = Ring<6, kWeightBytes>;
/// Dynamic shared memory for the stages of both rings.
inline constexpr int kStagesBytes =
    InputRing::kStages * kInputBytes + WeightRing::kStages * kWeightBytes + kOperandAlignment;

/// The shared address of the input's stages in `memory`, and of the weight's.
__device__ __forceinline__ unsigned input_stages(const void* memory) {
  return operand_memory(memory);
}
__device__ __forceinline__ unsigned weight_stages(const void* memory) {
  return input_stages(memory) + InputRing::kStages * kInputBytes;
}

// --- producers: one thread each ---------------------------------------------------------------

/// Copies all steps of the weight's rows from `first_column` on, the tile's columns.
__device__ __forceinline__ void produce_weight(RingCursor<WeightRing> ring, const CUtensorMap& map,
                                               int first_column, int steps, int step_elements) {
  const uint64_t policy = evict_first();
  for (int step = 0; step < steps; ++step, ring.advance()) {
    ring.producer_wait();
    ring.full().arrive_expect_bytes(kWeightBytes);
    tma_load_2d(ring.stage(), map, step * step_elements, first_column, ring.full(), policy);
  }
}

/// The rows of the input that each block of a cluster copies to all of them.
__host__ __device__ constexpr int input_share(int rows, int blocks) {
  constexpr int kSwizzleRows = 8;
  return ((rows + blocks - 1) / blocks + kSwizzleRows - 1) / kSwizzleRows * kSwizzleRows;
}

/// Copies all steps of the block's share of the input's rows to the kBlocks blocks of the cluster.
template <int kBlocks>
__device__ __forceinline__ void produce_input(RingCursor<InputRing> ring, const CUtensorMap& map,
                                              int rows, int steps, int step_elements) {
  constexpr uint16_t kAllBlocks = (1 << kBlocks) - 1;
  const int share = input_share(rows, kBlocks), shares = (rows + share - 1) / share;
  const int row = static_cast<int>(blockIdx.x % kBlocks) * share;
  const uint64_t policy = evict_last();
  for (int step = 0; step < steps; ++step, ring.advance()) {
    ring.producer_wait();
    ring.full().arrive_expect_bytes(shares * share * kOperandRowBytes);
    if (row < rows) {
      tma_load_2d_multicast(ring.stage() + row * kOperandRowBytes, map, step * step_elements, row,
                            ring.full(), kAllBlocks, policy);
    }
  }
}

// --- consumers --------------------------------------------------------------------------------

// wgmma m64n128: v is [2][32], where v[i] are the columns of row g + 8 i that a lane of quad g
// holds.
// clang-format off
#define WARPFUSE_WGMMA_64X128(DEPTH_AND_TYPES, CONSTRAINT, v, OPERANDS, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128" DEPTH_AND_TYPES " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
               "}, " OPERANDS ";" \
               : CONSTRAINT((v)[0][0]), CONSTRAINT((v)[0][1]), CONSTRAINT((v)[1][0]), CONSTRAINT((v)[1][1]), \
                 CONSTRAINT((v)[0][2]), CONSTRAINT((v)[0][3]), CONSTRAINT((v)[1][2]), CONSTRAINT((v)[1][3]), \
                 CONSTRAINT((v)[0][4]), CONSTRAINT((v)[0][5]), CONSTRAINT((v)[1][4]), CONSTRAINT((v)[1][5]), \
                 CONSTRAINT((v)[0][6]), CONSTRAINT((v)[0][7]), CONSTRAINT((v)[1][6]), CONSTRAINT((v)[1][7]), \
                 CONSTRAINT((v)[0][8]), CONSTRAINT((v)[0][9]), CONSTRAINT((v)[1][8]), CONSTRAINT((v)[1][9]), \
                 CONSTRAINT((v)[0][10]), CONSTRAINT((v)[0][11]), CONSTRAINT((v)[1][10]), CONSTRAINT((v)[1][11]), \
                 CONSTRAINT((v)[0][12]), CONSTRAINT((v)[0][13]), CONSTRAINT((v)[1][12]), CONSTRAINT((v)[1][13]), \
                 CONSTRAINT((v)[0][14]), CONSTRAINT((v)[0][15]), CONSTRAINT((v)[1][14]), CONSTRAINT((v)[1][15]), \
                 CONSTRAINT((v)[0][16]), CONSTRAINT((v)[0][17]), CONSTRAINT((v)[1][16]), CONSTRAINT((v)[1][17]), \
                 CONSTRAINT((v)[0][18]), CONSTRAINT((v)[0][19]), CONSTRAINT((v)[1][18]), CONSTRAINT((v)[1][19]), \
                 CONSTRAINT((v)[0][20]), CONSTRAINT((v)[0][21]), CONSTRAINT((v)[1][20]), CONSTRAINT((v)[1][21]), \
                 CONSTRAINT((v)[0][22]), CONSTRAINT((v)[0][23]), CONSTRAINT((v)[1][22]), CONSTRAINT((v)[1][23]), \
                 CONSTRAINT((v)[0][24]), CONSTRAINT((v)[0][25]), CONSTRAINT((v)[1][24]), CONSTRAINT((v)[1][25]), \
                 CONSTRAINT((v)[0][26]), CONSTRAINT((v)[0][27]), CONSTRAINT((v)[1][26]), CONSTRAINT((v)[1][27]), \
                 CONSTRAINT((v)[0][28]), CONSTRAINT((v)[0][29]), CONSTRAINT((v)[1][28]), CONSTRAINT((v)[1][29]), \
                 CONSTRAINT((v)[0][30]), CONSTRAINT((v)[0][31]), CONSTRAINT((v)[1][30]), CONSTRAINT((v)[1][31]) \
               : __VA_ARGS__)
// clang-format on

/// The tile in the registers of kThreads threads, accumulated in float32: each warpgroup has 64
/// rows, a thread kRows x kColumns values. float is multiplied as TF32.
template <typename T>
class TileProduct {
 public:
  using Element = T;
  static constexpr int kThreads = 256, kRows = 2, kColumns = 32;
  static constexpr int kInstructionBytes = 32;  // of each row of an operand
  static constexpr int kRowLanes = 4;  // neighbouring lanes that hold a row of a warp's part
  static constexpr int kInputStepElements = kOperandRowBytes / static_cast<int>(sizeof(T));

  float values[kRows][kColumns] = {};  // [i][j]: row(i), column(j) of the tile

  /// Stages of either ring that hold `inner` elements per row.
  __device__ static int steps(int inner) {
    return (inner + kInputStepElements - 1) / kInputStepElements;
  }

  __device__ static int row(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i; }
  __device__ static int column(int j) { return 8 * (j / 2) + 2 * (threadIdx.x % 4) + j % 2; }

  /// A barrier of the kThreads consumer threads.
  __device__ static void sync() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }

  /// Accumulates all steps. kBlocks blocks of a cluster share the input's stages.
  template <int kBlocks>
  __device__ void multiply(RingCursor<InputRing> input, RingCursor<WeightRing> weight, int steps) {
    const unsigned lane = threadIdx.x % 32, rows = threadIdx.x / 128 * (64 * kOperandRowBytes);
    for (int step = 0; step < steps; ++step) {
      weight.consumer_wait();
      input.consumer_wait();
      const uint64_t a = wgmma_operand(input.stage() + rows), b = wgmma_operand(weight.stage());
      wgmma_begin();
#pragma unroll
      for (int part = 0; part < kOperandRowBytes; part += kInstructionBytes) {
        multiply_add(a + part / kOperandUnit, b + part / kOperandUnit);
      }
      wgmma_end();
      // No product overlaps the next one: memory is slower than the tensor cores, and the producers
      // wait for the stage.
      wgmma_wait();
      if (lane == 0) {
        weight.consumer_release();
      }
      if (lane < kBlocks) {
        input.consumer_release(lane);
      }
      weight.advance();
      input.advance();
    }
  }

  /// Stores row(i) times `factor` to `output`, of which the first `columns` exist, a multiple of 8.
  __device__ void store(int i, float factor, T* output, int columns) const {
    const float (&v)[kColumns] = values[i];
    const int lane = threadIdx.x % 4;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) {
        if (column(j) < columns) {
          *reinterpret_cast<float2*>(output + column(j)) =
              make_float2(v[j] * factor, v[j + 1] * factor);
        }
      }
    } else {
      // Neighbouring lanes exchange pairs of two groups of 8 columns: each then stores 8 bytes.
#pragma unroll
      for (int j = 0; j < kColumns; j += 4) {
        const unsigned low = pair(v[j] * factor, v[j + 1] * factor);
        const unsigned high = pair(v[j + 2] * factor, v[j + 3] * factor);
        const bool odd = lane % 2 != 0;
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
        const int column = 4 * j + lane % 2 * 8 + lane / 2 * 4;
        if (column < columns) {
          *reinterpret_cast<uint2*>(output + column) =
              odd ? make_uint2(other, high) : make_uint2(low, other);
        }
      }
    }
  }

 private:
  __device__ static unsigned pair(float a, float b) {
    const float both[] = {a, b};
    return pack_word(both, T());
  }

  __device__ __forceinline__ void multiply_add(uint64_t a, uint64_t b) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      WARPFUSE_WGMMA_64X128("k16.f32.bf16.bf16", "+f", values, "%64, %65, 1, 1, 1, 0, 0", "l"(a),
                            "l"(b));
    } else if constexpr (std::is_same_v<T, __half>) {
      WARPFUSE_WGMMA_64X128("k16.f32.f16.f16", "+f", values, "%64, %65, 1, 1, 1, 0, 0", "l"(a),
                            "l"(b));
    } else {
      static_assert(std::is_same_v<T, float>);
      WARPFUSE_WGMMA_64X128("k8.f32.tf32.tf32", "+f", values, "%64, %65, 1, 1, 1", "l"(a), "l"(b));
    }
  }
};

}  // namespace warpfuse::cuda
