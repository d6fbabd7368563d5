#include <cooperative_groups.h>

#include "linear_dropout_softmax/linear_dropout_softmax_kernel.h"
#include "linear_dropout_softmax/tensor_map.h"
#include "linear_dropout_softmax/tile_softmax.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kClusterBlocks = 2;  // clusters of four leave 12 of the H200's multiprocessors idle
constexpr int kFetchers = 64;      // threads: a warp an operand, of which one thread is at work

// Rows of input and weight, in bytes. What is longer was not measured, or is slower.
constexpr int64_t kShortInner = 8192, kLongInnerOfHalf = 16'384, kLongInnerOfTf32 = 131'072;

// Whether it is faster than at::linear and a kernel behind it, measured on an H200: with half of
// the blocks that run at once where rows are short, else with two thirds.
bool is_faster(DType dtype, int64_t inner_bytes, int64_t blocks, int64_t resident) {
  const int64_t longest = dtype == DType::float32 ? kLongInnerOfTf32 : kLongInnerOfHalf;
  return inner_bytes <= kShortInner ? 2 * blocks >= resident
                                    : 3 * blocks >= 2 * resident && inner_bytes <= longest;
}

template <typename T>
struct Parameters {
  const T* bias;     // [columns] or null
  T* output;         // [rows, columns]
  RowSum<T>* noted;  // [blocks, kTileRows]
  int rows, columns, inner;
  Dropout dropout;
  RngSource rng;
  int64_t* rng_used;
};

/// A block has kTileColumns columns of all rows. Its logits never leave the registers: blocks tell
/// each other the sums of their parts of the rows, at one barrier of the grid, as of
/// cooperative_kernel().
template <typename T>
__global__ void __launch_bounds__(TileProduct<T>::kThreads + kFetchers, 1)
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
  __shared__ KeptTile kept;
  __shared__ float bias[kTileColumns];
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  if (thread == 0) {
    input_ring.prepare(kClusterBlocks * kThreads / 32);
    weight_ring.prepare(kThreads / 32);
    totals.prepare();
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  wait_for_previous_kernel();

  const int first_column = block * kTileColumns;
  const int columns = p.columns - first_column;  // may be below 0
  constexpr int kStepElements = kStageRowBytes / static_cast<int>(sizeof(T));
  const int steps = (p.inner + kStepElements - 1) / kStepElements;
  const RingCursor input_at(input_ring, input_memory(memory));
  const RingCursor weight_at(weight_ring, weight_memory(memory));
  Product product;
  float max_of_row[Product::kRows];
  if (thread < kThreads) {
    const Rng rng = rng_of_kernel(p.rng, p.rng_used);
    if (thread < kTileColumns) {
      bias[thread] =
          p.bias != nullptr && thread < columns ? to_compute(p.bias[first_column + thread]) : 0.0f;
    }
    kept.draw(p.dropout, rng, p.columns, first_column, kThreads);
    Product::meet();
    uint32_t kept_of_thread[Product::kRows];
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      kept_of_thread[i] = kept.of_thread<Product>(i);
    }
    product.template multiply<kClusterBlocks>(input_at, weight_at, steps);
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      const RowSum<T> row = exponentials<T>(product, i, kept_of_thread[i],
                                            static_cast<float>(p.dropout.scale), bias, columns);
      max_of_row[i] = row.max;
      if (thread % Product::kRowLanes == 0) {
        p.noted[int64_t{block} * kTileRows + Product::row(i)] = row;
      }
    }
  } else if (thread == kThreads) {
    fetch_weight(weight_at, weight, first_column, steps, kStepElements);
  } else if (thread == kThreads + 32) {
    fetch_input<kClusterBlocks>(input_at, input, p.rows, steps, kStepElements);
  }
  cooperative_groups::this_grid().sync();

  if (thread < kThreads) {
    totals.combine(p.noted, static_cast<int>(gridDim.x), [] { Product::meet(); });
#pragma unroll
    for (int i = 0; i < Product::kRows; ++i) {
      const int row = Product::row(i);
      const RowSum<T> total = totals.of_row[row];
      // Where all is minus infinity, 0 / 0.
      const float factor =
          rescale_factor<T>(max_of_row[i] - RowSum<T>::reference(total.max)) / total.sum;
      // All lanes of a row take part, those of no row too.
      product.store(i, factor, p.output + int64_t{row} * p.columns + first_column,
                    row < p.rows ? columns : 0);
    }
  }
#endif
}

int64_t blocks_of(int64_t columns) {
  constexpr int64_t kColumns = int64_t{kClusterBlocks} * kTileColumns;
  return (columns + kColumns - 1) / kColumns * kClusterBlocks;
}

LaunchShape shape_of(int64_t columns) {
  return {Tier::tile,          0,
          blocks_of(columns),  TileProduct<float>::kThreads + kFetchers,
          kClusterBlocks,      kStagesBytes,
          /*cooperative=*/true};
}

/// wgmma is in code for compute capability 9.0 that says "a", and on no other GPU.
bool has_code() {
#ifdef WARPFUSE_HOPPER_CODE
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9 && device_limits().dependent_launch;  // as code for 9.0 may
#else
  return false;
#endif
}

}  // namespace

bool fits_linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments) {
  const auto& a = arguments;
  const int64_t inner_bytes = a.inner * element_bytes(a.dtype);
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  // at::linear does not round one row of float32 to TF32.
  const int64_t least_rows = a.dtype == DType::float32 ? 2 : 1;
  if (a.dtype == DType::float64 || a.rows < least_rows || a.rows > kTileRows || a.columns < 1 ||
      a.inner < 1 || inner_bytes % 16 != 0 || a.columns % kDropoutBlock != 0 || !aligned(a.input) ||
      !aligned(a.weight) || !has_code()) {
    return false;
  }
  const LaunchShape shape = shape_of(a.columns);
  const auto limits = tuning();
  return shape.shared_bytes <= limits->shared_bytes && shape.cluster <= limits->cluster_blocks &&
         dispatch_narrow(a.dtype, [&](auto zero) {
           const auto kernel = linear_dropout_softmax_kernel<decltype(zero)>;
           const int64_t resident =
               resident_clusters(reinterpret_cast<const void*>(kernel), shape) * shape.cluster;
           return shape.blocks <= resident &&
                  is_faster(a.dtype, inner_bytes, shape.blocks, resident);
         });
}

cudaError_t linear_dropout_softmax_cuda(const LinearDropoutSoftmaxArguments& arguments,
                                        Workspace& workspace, cudaStream_t stream) {
  return dispatch_narrow(arguments.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LaunchShape shape = shape_of(arguments.columns);
    const Parameters<T> parameters{
        static_cast<const T*>(arguments.bias),
        static_cast<T*>(arguments.output),
        static_cast<RowSum<T>*>(workspace.allocate(shape.blocks * kTileRows * sizeof(RowSum<T>))),
        static_cast<int>(arguments.rows),
        static_cast<int>(arguments.columns),
        static_cast<int>(arguments.inner),
        arguments.dropout,
        arguments.rng,
        arguments.rng_used};
    const auto map_of = [&](const void* matrix, int64_t rows, int box_rows) {
      return tensor_map(matrix, arguments.dtype, rows, arguments.inner, box_rows, kStageRowBytes);
    };
    return launch_kernel(
        linear_dropout_softmax_kernel<T>, shape, stream,
        map_of(arguments.input, arguments.rows, rows_of_block(parameters.rows, kClusterBlocks)),
        map_of(arguments.weight, arguments.columns, kTileColumns), parameters);
  });
}

}  // namespace warpfuse
