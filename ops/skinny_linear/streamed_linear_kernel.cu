#include <algorithm>

#include "hopper/ring.cuh"
#include "hopper/tensor_map.h"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "skinny_linear/linear_forms.h"
#include "skinny_linear/ranked_output.cuh"
#include "skinny_linear/tile_product.cuh"

namespace warpfuse::cuda {
namespace {

// Many outputs of up to 128 rows, or the largest of each row. A block holds its rows in shared
// memory, 64 per warpgroup, and a producer thread streams tiles of 64 outputs' weights past them.

constexpr int kTile = 64;                            // outputs, and rows of a warpgroup
constexpr int kStepElements = kOperandRowBytes / 2;  // of each row of an operand
constexpr int kOperandBytes = kTile * kOperandRowBytes;
constexpr int kGroupThreads = 128;

template <int kGroups>
struct StreamedBlock {
  static constexpr int kRows = kGroups * kTile, kThreads = kGroups * kGroupThreads + 32;
  static constexpr int kStepRows = kRows * kOperandRowBytes;  // bytes of one step of all rows
  // The more the better; next to 128 rows of 768 elements there is room for 3.
  using WeightRing = Ring<kGroups == 1 ? 8 : 3, kOperandBytes>;

  static size_t shared_bytes(int64_t columns) {
    const int64_t steps = (columns + kStepElements - 1) / kStepElements;
    return steps * kStepRows + WeightRing::kStages * kOperandBytes + kOperandAlignment;
  }
};

template <typename T, int kGroups, bool kArgmax>
__global__ void __launch_bounds__(StreamedBlock<kGroups>::kThreads)
    streamed_linear_kernel(const __grid_constant__ CUtensorMap input,
                           const __grid_constant__ CUtensorMap weight,
                           const __grid_constant__ SkinnyLinearArguments a,
                           unsigned long long* partials, bool continues_chain) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = StreamedBlock<kGroups>;
  using WeightRing = typename Block::WeightRing;
  extern __shared__ unsigned char memory[];
  __shared__ WeightRing ring;
  __shared__ Mbarrier rows_arrived;
  __shared__ unsigned long long best_of_block[Block::kRows];
  if (continues_chain) {
    launch_dependents();
  }
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  if (thread == 0) {
    ring.init(kGroups * kGroupThreads / 32);
    rows_arrived.init(1);
    fence_mbarrier_init();
  }
  if (kArgmax && thread < Block::kRows) {
    best_of_block[thread] = 0;
  }
  __syncthreads();
  const int row_blocks = static_cast<int>((a.rows + Block::kRows - 1) / Block::kRows);
  const int64_t first_row = int64_t{blockIdx.x % row_blocks} * Block::kRows;
  const int blocks = static_cast<int>(gridDim.x) / row_blocks;  // that share the tiles
  const int block = static_cast<int>(blockIdx.x) / row_blocks;
  const int tiles = static_cast<int>((a.outputs + kTile - 1) / kTile);
  const int steps = static_cast<int>((a.columns + kStepElements - 1) / kStepElements);
  const int block_tiles = (tiles - block + blocks - 1) / blocks;
  const unsigned rows = operand_memory(memory);
  RingCursor cursor(ring, rows + steps * Block::kStepRows);

  if (thread >= kGroups * kGroupThreads) {
    if (lane == 0) {
      const uint64_t once = evict_first(), again = evict_last();
      int loaded = 0;
      const auto load_weights = [&](int end) {
        for (; loaded < end; ++loaded, cursor.advance()) {
          const int tile = block + loaded / steps * blocks;
          cursor.producer_wait();
          cursor.full().arrive_expect_bytes(kOperandBytes);
          tma_load_2d(cursor.stage(), weight, loaded % steps * kStepElements, tile * kTile,
                      cursor.full(), once);
        }
      };
      const int stages = block_tiles * steps;
      if (continues_chain) {
        load_weights(min(WeightRing::kStages, stages));
      }
      wait_for_previous_kernel();
      rows_arrived.arrive_expect_bytes(steps * Block::kStepRows);
      for (int step = 0; step < steps; ++step) {
        tma_load_2d(rows + step * Block::kStepRows, input, step * kStepElements,
                    static_cast<int>(first_row), rows_arrived, again);
      }
      load_weights(stages);
    }
  } else {
    wait_for_previous_kernel();
    const int group = thread / kGroupThreads;
    // This thread's outputs in a tile, and its rows.
    const auto output_of = [&](int i) { return thread % kGroupThreads / 32 * 16 + quad() + 8 * i; };
    const auto row_of = [&](int j, int k) { return group * kTile + 8 * j + 2 * quad_rank() + k; };
    const auto for_rows = [](const auto& visit) {
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j) {
        visit(j, 0);
        visit(j, 1);
      }
    };
    int32_t best[kTile / 8][2], index[kTile / 8][2];  // each row's largest: its key and index
    for_rows([&](int j, int k) {
      best[j][k] = INT32_MIN;
      index[j][k] = 0;
    });
    rows_arrived.wait(0);
    for (int64_t tile = block; tile < tiles; tile += blocks) {
      float sums[kTile / 8][4] = {};
      for (int step = 0; step < steps; ++step, cursor.advance()) {
        cursor.consumer_wait();
        const uint64_t w = wgmma_operand(cursor.stage());
        const uint64_t x = wgmma_operand(rows + step * Block::kStepRows + group * kOperandBytes);
        wgmma_begin();
#pragma unroll
        for (int part = 0; part < kOperandRowBytes; part += 32) {
          wgmma_64x64<T, true>(sums, w + part / kOperandUnit, x + part / kOperandUnit);
        }
        wgmma_end();
        wgmma_wait();
        if (lane == 0) {
          cursor.consumer_release();
        }
      }
      pin(sums);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t output = tile * kTile + output_of(i);
        if (output >= a.outputs) {
          continue;
        }
        const float bias = element_or_zero<T>(a.bias, output);
        for_rows([&](int j, int k) {
          const float sum = sums[j][2 * i + k] + bias;
          if constexpr (kArgmax) {
            const int32_t key = key_of(from_compute<T>(sum));
            if (key > best[j][k]) {
              best[j][k] = key;
              index[j][k] = static_cast<int32_t>(output);
            }
          } else if (const int64_t row = first_row + row_of(j, k); row < a.rows) {
            const int64_t at = row * a.outputs + output;
            static_cast<T*>(a.output)[at] =
                from_compute<T>(activated(sum, a.activation) + element_or_zero<T>(a.residual, at));
          }
        });
      }
    }
    if constexpr (kArgmax) {
      for_rows([&](int j, int k) {
        unsigned long long of_lane = ranked(best[j][k], index[j][k]);
#pragma unroll
        for (int offset = kQuad; offset < 32; offset *= 2) {
          of_lane = max(of_lane, __shfl_xor_sync(~0u, of_lane, offset));
        }
        if (quad() == 0) {
          atomicMax(&best_of_block[row_of(j, k)], of_lane);
        }
      });
    }
  }
  if constexpr (kArgmax) {
    __syncthreads();
    if (thread < Block::kRows && first_row + thread < a.rows) {
      partials[(first_row + thread) * blocks + block] = best_of_block[thread];
    }
  }
#endif
}

// --- launch -----------------------------------------------------------------------------------

template <typename T, int kGroups>
cudaError_t launch(const SkinnyLinearArguments& a, Workspace& workspace, cudaStream_t stream) {
  using Block = StreamedBlock<kGroups>;
  const CUtensorMapDataType type = tensor_map_type(a.dtype);
  CUtensorMap input, weight;
  cudaError_t error =
      encode_operand(input, type, a.input, a.rows, a.columns, a.columns, Block::kRows);
  if (error == cudaSuccess) {
    error = encode_operand(weight, type, a.weight, a.outputs, a.columns, a.weight_stride, kTile);
  }
  if (error != cudaSuccess) {
    return error;
  }
  const int64_t row_blocks = (a.rows + Block::kRows - 1) / Block::kRows;
  const int64_t blocks =
      std::min(device_limits().rows.multiprocessors / row_blocks, (a.outputs + kTile - 1) / kTile);
  LaunchShape shape{Tier::tile, 0, blocks * row_blocks, Block::kThreads};
  shape.shared_bytes = Block::shared_bytes(a.columns);
  using Partials = unsigned long long*;
  if (a.tokens == nullptr) {
    return launch_in_chain<streamed_linear_kernel<T, kGroups, false>>(shape, stream, input, weight,
                                                                      a, Partials());
  }
  const auto partials =
      static_cast<Partials>(workspace.allocate(a.rows * blocks * sizeof(*Partials())));
  error = launch_in_chain<streamed_linear_kernel<T, kGroups, true>>(shape, stream, input, weight, a,
                                                                    partials);
  return error == cudaSuccess ? launch_best_token<T>(a, partials, blocks, stream) : error;
}

template <int kGroups>
bool fits(const SkinnyLinearArguments& a) {
  constexpr size_t kStaticBytes = 2048;
  constexpr size_t kBlockBytes = size_t{227} * 1024;  // static and dynamic, where wgmma is: on 9.0
  return StreamedBlock<kGroups>::shared_bytes(a.columns) + kStaticBytes <=
         std::min(kBlockBytes, tuning().shared_bytes);
}

}  // namespace

bool fits_streamed_linear(const SkinnyLinearArguments& a) {
  // ATen's product is faster where rows of its result are whole packs.
  const bool is_faster = a.tokens != nullptr || a.outputs % 8 != 0;
  return is_faster && a.norm == Norm::none && a.dtype != DType::float32 && has_wgmma_code() &&
         a.outputs <= INT32_MAX && fits<1>(a);
}

cudaError_t launch_streamed_linear(const SkinnyLinearArguments& a, Workspace& workspace,
                                   cudaStream_t stream) {
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      return a.rows > kTile && fits<2>(a) ? launch<T, 2>(a, workspace, stream)
                                          : launch<T, 1>(a, workspace, stream);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace warpfuse::cuda
