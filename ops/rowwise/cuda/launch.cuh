#pragma once

#include <cuda_runtime.h>

#include <climits>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/tiers.cuh"
#include "rowwise/tier_counters.h"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

/// The shape of a function's rows, for the plan; `start` is the first row of the tensor that
/// decides the alignment.
template <typename Function>
RowShape shape_of(const typename Function::T* start, int64_t columns) {
  using T = typename Function::T;
  const bool aligned = reinterpret_cast<uintptr_t>(start) % 16 == 0 && columns % kPack<T> == 0;
  return {packs_of_row(columns, kPack<T>, aligned), sizeof(typename Function::Cached)};
}

template <int kLanePacks, typename Function>
cudaError_t launch_warp(const Function& function, int64_t rows, const RowPlan& plan,
                        cudaStream_t stream) {
  const int64_t rows_of_block = plan.threads / plan.lanes;
  const int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  if (blocks > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  warp_kernel<kLanePacks>
      <<<static_cast<unsigned>(blocks), plan.threads, 0, stream>>>(function, rows, plan.lanes);
  return cudaGetLastError();
}

template <typename Function>
cudaError_t launch_shared(const Function& function, int64_t rows, const RowPlan& plan,
                          cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(shared_kernel<Function>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(plan.shared_bytes));
  if (error != cudaSuccess) {
    return error;
  }
  shared_kernel<<<static_cast<unsigned>(rows), plan.threads, plan.shared_bytes, stream>>>(function);
  return cudaGetLastError();
}

/// Runs the function over [0, rows) as the plan says. The launch's error is the result.
template <typename Function>
cudaError_t launch_rows(const Function& function, int64_t rows, const RowPlan& plan,
                        cudaStream_t stream) {
  tier_counter(plan.tier).add();
  if (plan.tier == Tier::warp) {
    switch (plan.lane_packs) {
      case 1:
        return launch_warp<1>(function, rows, plan, stream);
      case 2:
        return launch_warp<2>(function, rows, plan, stream);
      case 4:
        return launch_warp<4>(function, rows, plan, stream);
      case 8:
        return launch_warp<8>(function, rows, plan, stream);
      default:
        return cudaErrorInvalidConfiguration;
    }
  }
  if (rows > INT_MAX) {
    return cudaErrorInvalidConfiguration;
  }
  const unsigned blocks = static_cast<unsigned>(rows);
  if (plan.tier == Tier::stream) {
    stream_kernel<<<blocks, plan.threads, 0, stream>>>(function);
    return cudaGetLastError();
  }
  if (plan.lane_packs == kBlockLanePacks) {
    block_kernel<kBlockLanePacks><<<blocks, plan.threads, 0, stream>>>(function);
    return cudaGetLastError();
  }
  return launch_shared(function, rows, plan, stream);
}

/// The same with the plan that the tuning gives for this shape.
template <typename Function>
cudaError_t launch_rows(const Function& function, int64_t rows, const typename Function::T* start,
                        cudaStream_t stream) {
  const RowShape shape = shape_of<Function>(start, function.columns);
  return launch_rows(function, rows, plan_rows(shape, shared_memory_limit(), RowTuning{}), stream);
}

}  // namespace warpfuse::cuda
