#include <cooperative_groups.h>

#include "hopper/tensor_map.h"
#include "linear_dropout_softmax/linear_dropout_softmax.h"
#include "linear_dropout_softmax/split_float.cuh"
#include "linear_dropout_softmax/split_product.cuh"
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
constexpr int kMinRowsSplit = 64;     // at::linear of a few rows is more exact

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
  const float* scales;      // [rows], of SplitProduct's input
  RowPartial<T>* partials;  // [blocks, kTileRows]
  int rows, columns, inner;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;  // [2], or null: nothing is drawn or dropped
};

/// Each block computes kTileColumns columns of all rows. The logits stay in registers; the blocks
/// exchange the partials of their rows through global memory, at one barrier of the (cooperative)
/// grid.
template <typename Product>
__global__ void __launch_bounds__(Product::kThreads + kProducerThreads, 1)
    linear_dropout_softmax_kernel(const __grid_constant__ CUtensorMap input,
                                  const __grid_constant__ CUtensorMap weight,
                                  const __grid_constant__ Parameters<typename Product::Element> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Product::Element;
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
  constexpr int kStepElements = kOperandRowBytes / static_cast<int>(sizeof(T));  // of the weight
  const int steps = Product::steps(p.inner);
  const RingCursor input_cursor(input_ring, input_stages(memory));
  const RingCursor weight_cursor(weight_ring, weight_stages(memory));
  Product product;
  float row_max[Product::kRows];  // within the tile
  if (thread < kThreads) {
    if (thread < kTileColumns) {
      bias[thread] =
          p.bias != nullptr && thread < columns ? to_compute(p.bias[first_column + thread]) : 0.0f;
    }
    const bool draws = p.rng_used != nullptr;
    if (draws) {
      keep_mask.draw(p.dropout, rng_of_kernel(p.rng, p.rng_used), p.columns, first_column,
                     kThreads);
    }
    Product::sync();
    uint32_t keep_bits[Product::kRows];
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      keep_bits[i] = draws ? keep_mask.thread_bits<Product>(i) : 0xffffffffu;
    }
    if constexpr (std::is_same_v<Product, SplitProduct>) {
      product.template multiply<kClusterBlocks>(input_cursor, weight_cursor, steps, p.scales,
                                                p.rows, reinterpret_cast<float*>(memory));
    } else {
      product.template multiply<kClusterBlocks>(input_cursor, weight_cursor, steps);
    }
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
    produce_input<kClusterBlocks>(input_cursor, input, p.rows, steps, Product::kInputStepElements);
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

/// TMA rounds float32 to TF32, unless it is to be split.
CUtensorMapDataType operand_type(const LinearDropoutSoftmaxArguments& a) {
  return a.dtype == DType::float32 && !a.split ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                               : tensor_map_type(a.dtype);
}

/// Calls the function with the type of the product that these arguments take.
template <typename Function>
auto dispatch_product(const LinearDropoutSoftmaxArguments& a, const Function& function) {
  return a.split ? function(std::type_identity<SplitProduct>())
                 : dispatch_narrow(a.dtype, [&](auto zero) {
                     return function(std::type_identity<TileProduct<decltype(zero)>>());
                   });
}

}  // namespace

bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments) {
  const auto& a = arguments;
  const int64_t inner_bytes = a.inner * element_bytes(a.dtype);
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  const int64_t min_rows = a.dtype != DType::float32 ? 1 : a.split ? kMinRowsSplit : kMinRowsTf32;
  if (a.dtype == DType::float64 || a.rows < min_rows || a.rows > kTileRows || a.columns < 1 ||
      a.inner < 1 || inner_bytes % 16 != 0 || a.columns % kDropoutBlock != 0 || !aligned(a.input) ||
      !aligned(a.weight) || !has_wgmma_code()) {
    return false;
  }
  const LaunchShape shape = launch_shape(a.columns);
  const Tuning& limits = tuning();
  return shape.shared_bytes <= limits.shared_bytes && shape.cluster <= limits.cluster_blocks &&
         dispatch_product(a, [&]<typename Product>(std::type_identity<Product>) {
           const auto kernel = linear_dropout_softmax_kernel<Product>;
           const int64_t max_active_blocks = max_active_clusters(kernel, shape) * shape.cluster;
           return shape.blocks <= max_active_blocks &&
                  is_faster(a.dtype, inner_bytes, shape.blocks, max_active_blocks);
         });
}

cudaError_t launch_cuda(const LinearDropoutSoftmaxArguments& arguments, Workspace& workspace,
                        cudaStream_t stream) {
  const auto& a = arguments;
  const int rows = static_cast<int>(a.rows), inner = static_cast<int>(a.inner);
  const int share = input_share(rows, kClusterBlocks);
  CUtensorMap input, weight;
  float* scales = nullptr;
  cudaError_t error = cudaSuccess;
  if (a.split) {
    const int64_t row_pieces = int64_t{2} * split_groups(inner) * kSplitElements;
    auto* const pieces = static_cast<__half*>(workspace.allocate(rows * row_pieces * 2));
    scales = static_cast<float*>(workspace.allocate(rows * sizeof(float)));
    const LaunchShape row_blocks{
        .tier = Tier::elements, .lane_packs = 0, .blocks = rows, .threads = kSplitThreads};
    error = launch_kernel(split_input_kernel, row_blocks, stream,
                          static_cast<const float4*>(a.input), inner, pieces, scales);
    if (error == cudaSuccess) {
      error = encode_operand(input, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, pieces, rows, row_pieces,
                             row_pieces, share);
    }
  } else {
    error = encode_operand(input, operand_type(a), a.input, rows, inner, inner, share);
  }
  if (error == cudaSuccess) {
    error =
        encode_operand(weight, operand_type(a), a.weight, a.columns, inner, inner, kTileColumns);
  }
  if (error != cudaSuccess) {
    return error;
  }
  return dispatch_product(a, [&]<typename Product>(std::type_identity<Product>) {
    using T = typename Product::Element;
    const LaunchShape shape = launch_shape(a.columns);
    auto* const partials = static_cast<RowPartial<T>*>(
        workspace.allocate(shape.blocks * kTileRows * sizeof(RowPartial<T>)));
    const Parameters<T> parameters{.bias = static_cast<const T*>(a.bias),
                                   .output = static_cast<T*>(a.output),
                                   .scales = scales,
                                   .partials = partials,
                                   .rows = rows,
                                   .columns = static_cast<int>(a.columns),
                                   .inner = inner,
                                   .dropout = a.dropout,
                                   .rng = a.rng,
                                   .rng_used = a.rng_used};
    return launch_kernel(linear_dropout_softmax_kernel<Product>, shape, stream, input, weight,
                         parameters);
  });
}

}  // namespace warpfuse
