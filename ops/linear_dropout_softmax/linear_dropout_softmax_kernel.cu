#include <cooperative_groups.h>

#include "hopper/tensor_map.h"
#include "linear_dropout_softmax/linear_dropout_softmax.h"
#include "linear_dropout_softmax/tile_softmax.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kClusterBlocks = 2;     // clusters of 4 leave 12 of an H200's multiprocessors idle
constexpr int kProducerThreads = 64;  // a warp per operand, one thread of which works
constexpr int kMinRowsTf32 = 2;       // at::linear does not round a single row to TF32

// Whether this is faster than at::linear and a softmax kernel. Measured on an H200: short rows of
// the operands need half of the blocks that run at once, longer ones two thirds; beyond
// max_inner_bytes nothing was measured, or it is slower.
bool is_faster(DType dtype, int64_t inner_bytes, int64_t blocks, int64_t max_active_blocks) {
  constexpr int64_t kShortInnerBytes = 8192;
  const int64_t max_inner_bytes = dtype == DType::float32 ? 131'072 : 16'384;
  return inner_bytes <= kShortInnerBytes
             ? 2 * blocks >= max_active_blocks
             : 3 * blocks >= 2 * max_active_blocks && inner_bytes <= max_inner_bytes;
}

template <typename T>
struct Parameters {
  const T* bias;            // [columns] or null
  T* output;                // [rows, columns]
  RowPartial<T>* partials;  // [blocks, kTileRows]
  int rows, columns, inner;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2]
};

/// Each block computes kTileColumns columns of all rows. The logits stay in registers; the blocks
/// exchange the partials of their rows through global memory, at one barrier of the (cooperative)
/// grid.
template <typename T>
__global__ void __launch_bounds__(TileProduct<T>::kThreads + kProducerThreads, 1)
    linear_dropout_softmax_kernel(const __grid_constant__ CUtensorMap input,
                                  const __grid_constant__ CUtensorMap weight,
                                  const __grid_constant__ Parameters<T> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Product = TileProduct<T>;
  constexpr int kThreads = Product::kThreads;
  extern __shared__ unsigned char memory[];
  __shared__ InputRing input_ring;
  __shared__ WeightRing weight_ring;
  __shared__ RowTotals<T, kClusterBlocks, kThreads> totals;
  __shared__ TileKeepMask keep_mask;
  __shared__ float bias[kTileColumns];
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  if (thread == 0) {
    input_ring.init(kClusterBlocks * kThreads / 32);
    weight_ring.init(kThreads / 32);
    totals.init();
    fence_mbarrier_init();
  }
  sync_cluster_relaxed();
  wait_for_previous_kernel();

  const int first_column = block * kTileColumns;
  const int columns = p.columns - first_column;  // of the tile; may be negative
  constexpr int kStepElements = kStageRowBytes / static_cast<int>(sizeof(T));
  const int steps = (p.inner + kStepElements - 1) / kStepElements;
  const RingCursor input_cursor(input_ring, input_stages(memory));
  const RingCursor weight_cursor(weight_ring, weight_stages(memory));
  Product product;
  float row_max[Product::kRows];  // within the tile
  if (thread < kThreads) {
    const Rng rng = rng_of_kernel(p.rng, p.rng_used);
    if (thread < kTileColumns) {
      bias[thread] =
          p.bias != nullptr && thread < columns ? to_compute(p.bias[first_column + thread]) : 0.0f;
    }
    keep_mask.draw(p.dropout, rng, p.columns, first_column, kThreads);
    Product::sync();
    uint32_t keep_bits[Product::kRows];
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      keep_bits[i] = keep_mask.thread_bits<Product>(i);
    }
    product.template multiply<kClusterBlocks>(input_cursor, weight_cursor, steps);
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      const RowPartial<T> row = exponentiate<T>(product, i, keep_bits[i],
                                                static_cast<float>(p.dropout.scale), bias, columns);
      row_max[i] = row.max;
      if (thread % Product::kRowLanes == 0) {
        p.partials[int64_t{block} * kTileRows + Product::row(i)] = row;
      }
    }
  } else if (thread == kThreads) {
    produce_weight(weight_cursor, weight, first_column, steps, kStepElements);
  } else if (thread == kThreads + 32) {
    produce_input<kClusterBlocks>(input_cursor, input, p.rows, steps, kStepElements);
  }
  cooperative_groups::this_grid().sync();

  if (thread < kThreads) {
    totals.merge(p.partials, static_cast<int>(gridDim.x), [] { Product::sync(); });
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      const int row = Product::row(i);
      const RowPartial<T> total = totals.totals[row];
      // A row of -inf throughout gives 0 / 0, NaN.
      const float factor =
          rescale_factor<T>(row_max[i] - RowPartial<T>::exp_base(total.max)) / total.sum;
      // Lanes of padding rows take part: store() exchanges values between lanes.
      product.store(i, factor, p.output + int64_t{row} * p.columns + first_column,
                    row < p.rows ? columns : 0);
    }
  }
#endif
}

LaunchShape launch_shape(int64_t columns) {
  constexpr int64_t kClusterColumns = int64_t{kClusterBlocks} * kTileColumns;
  return {.tier = Tier::tile,
          .lane_packs = 0,
          .blocks = (columns + kClusterColumns - 1) / kClusterColumns * kClusterBlocks,
          .threads = TileProduct<float>::kThreads + kProducerThreads,
          .cluster = kClusterBlocks,
          .shared_bytes = kStagesBytes,
          .cooperative = true};
}

/// Whether the library has code with wgmma for the current device. Only code for 9.0a has it, which
/// runs on no other compute capability than 9.0.
bool has_code() {
#ifdef WARPFUSE_HOPPER_CODE
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9 && device_limits().dependent_launch;  // true for code of 9.0
#else
  return false;
#endif
}

/// The map of a contiguous matrix [rows, inner], copied in boxes of box_rows x kStageRowBytes. TMA
/// rounds float32 to TF32.
cudaError_t encode_operand(CUtensorMap& map, const void* matrix, DType dtype, int64_t rows,
                           int64_t inner, int box_rows) {
  const CUtensorMapDataType type = dtype == DType::float16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : dtype == DType::bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  const int bytes = element_bytes(dtype);
  return encode_tensor_map(map, type, matrix,
                           {{.size = inner, .box = kStageRowBytes / bytes, .stride_bytes = bytes},
                            {.size = rows, .box = box_rows, .stride_bytes = inner * bytes}},
                           CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace

bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments) {
  const auto& a = arguments;
  const int64_t inner_bytes = a.inner * element_bytes(a.dtype);
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  const int64_t min_rows = a.dtype == DType::float32 ? kMinRowsTf32 : 1;
  if (a.dtype == DType::float64 || a.rows < min_rows || a.rows > kTileRows || a.columns < 1 ||
      a.inner < 1 || inner_bytes % 16 != 0 || a.columns % kDropoutBlock != 0 || !aligned(a.input) ||
      !aligned(a.weight) || !has_code()) {
    return false;
  }
  const LaunchShape shape = launch_shape(a.columns);
  const Tuning& limits = tuning();
  return shape.shared_bytes <= limits.shared_bytes && shape.cluster <= limits.cluster_blocks &&
         dispatch_narrow(a.dtype, [&](auto zero) {
           const auto kernel = linear_dropout_softmax_kernel<decltype(zero)>;
           const int64_t max_active_blocks = max_active_clusters(kernel, shape) * shape.cluster;
           return shape.blocks <= max_active_blocks &&
                  is_faster(a.dtype, inner_bytes, shape.blocks, max_active_blocks);
         });
}

cudaError_t launch_cuda(const LinearDropoutSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  const auto& a = arguments;
  const int rows = static_cast<int>(a.rows);
  CUtensorMap input, weight;
  cudaError_t error =
      encode_operand(input, a.input, a.dtype, a.rows, a.inner, input_share(rows, kClusterBlocks));
  if (error == cudaSuccess) {
    error = encode_operand(weight, a.weight, a.dtype, a.columns, a.inner, kTileColumns);
  }
  if (error != cudaSuccess) {
    return error;
  }
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LaunchShape shape = launch_shape(a.columns);
    auto* const partials = static_cast<RowPartial<T>*>(
        workspace.allocate(shape.blocks * kTileRows * sizeof(RowPartial<T>)));
    const Parameters<T> parameters{static_cast<const T*>(a.bias),
                                   static_cast<T*>(a.output),
                                   partials,
                                   rows,
                                   static_cast<int>(a.columns),
                                   static_cast<int>(a.inner),
                                   a.dropout,
                                   a.rng,
                                   a.rng_used};
    return launch_kernel(linear_dropout_softmax_kernel<T>, shape, stream, input, weight,
                         parameters);
  });
}

}  // namespace warpfuse
