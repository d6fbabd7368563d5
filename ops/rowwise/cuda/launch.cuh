#pragma once

#include <algorithm>
#include <bit>

#include "core/kernel.h"
#include "rowwise/cuda/cooperative.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/in_registers.cuh"
#include "rowwise/cuda/in_shared.cuh"
#include "rowwise/cuda/interval_functions.cuh"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/ladder.cuh"
#include "rowwise/cuda/launch_chunk.cuh"
#include "rowwise/cuda/persistent.cuh"
#include "rowwise/cuda/readers.cuh"
#include "rowwise/cuda/row_kind.cuh"
#include "rowwise/cuda/two_pass.cuh"
#include "rowwise/tier_counters.h"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

/// The shape of a function's rows, for the plan.
template <typename Function>
RowShape shape_of(const Function& function, int64_t rows) {
  using T = typename Function::T;
  const T* const start = function.first_input();
  const int64_t columns = function.columns;
  const bool aligned = is_aligned(start, columns);
  const bool lines = reinterpret_cast<uintptr_t>(start) % (16 * kLinePacks) == 0 &&
                     columns % (kLinePacks * kPack<T>) == 0;
  bool chunk = true;
  if constexpr (kHasRules<Function>) {
    chunk = !function.key_mask().fills() && RowOrder::fits(function.key_mask().rules, rows);
  }
  return {kKind<Function>,
          columns / kPack<T>,
          aligned ? columns % kPack<T> : std::min<int64_t>(columns, kMaxEdges<T>),
          rows,
          IntervalTraits<Function>::fits(function, rows),
          lines ? 0 : kLinePacks - 1,
          chunk};
}

/// Calls call(std::integral_constant<int, number>()) where `number` is one of kNumbers, as that of
/// a plan is. Nothing is compiled for others.
template <LanePacks kNumbers, int kNumber = 0, typename Call>
cudaError_t with_lane_packs(int number, const Call& call) {
  if constexpr (kNumber > LanePacks::kMax) {
    return cudaErrorInvalidConfiguration;
  } else {
    if constexpr (kNumbers.contains(kNumber)) {
      if (number == kNumber) {
        return call(std::integral_constant<int, kNumber>());
      }
    }
    return with_lane_packs<kNumbers, kNumber + 1>(number, call);
  }
}

template <typename Function>
cudaError_t launch_warp(Function function, int64_t rows, const RowPlan& plan, cudaStream_t stream) {
  const int rows_of_block = plan.threads / plan.lanes;
  const int64_t steps = function.arrange(rows, rows_of_block);
  const int lanes_log2 = std::countr_zero(static_cast<unsigned>(plan.lanes));
  const LaunchShape shape{Tier::warp, plan.lane_packs, (steps + rows_of_block - 1) / rows_of_block,
                          plan.threads};
  return with_lane_packs<kKernels<Function>.warp>(plan.lane_packs, [&](auto packs) {
    if constexpr (packs == 0) {
      return launch_kernel(warp_two_pass_kernel<Function>, shape, stream, function, steps);
    } else {
      return launch_kernel(warp_kernel<packs, Function>, shape, stream, function, steps, plan.lanes,
                           lanes_log2);
    }
  });
}

template <typename Function>
cudaError_t launch_span(const Function& function, int64_t rows, const RowPlan& plan,
                        cudaStream_t stream) {
  const bool warps = plan.lanes == 32;
  const int64_t rows_of_block = warps ? plan.threads / 32 : 1;
  const LaunchShape shape{Tier::span, plan.lane_packs, (rows + rows_of_block - 1) / rows_of_block,
                          plan.threads};
  using Traits = IntervalTraits<Function>;
  static_assert(kHasRules<Function>,
                "without the type Mask, the kernel set has no interval kernels");
  const auto interval_function = Traits::make(function);
  using IntervalFunction = std::remove_const_t<decltype(interval_function)>;
  const auto launch = [&](auto kernel) {
    return launch_kernel(kernel, shape, stream, interval_function,
                         IntervalOrder(Traits::rules(function), rows));
  };
  if (warps) {
    return with_lane_packs<kKernels<Function>.span_warp>(plan.lane_packs, [&](auto packs) {
      return launch(interval_warp_kernel<packs, IntervalFunction>);
    });
  }
  return with_lane_packs<kKernels<Function>.span_block>(plan.lane_packs, [&](auto packs) {
    return launch(interval_block_kernel<packs, IntervalFunction>);
  });
}

/// Rows in shared memory, or double-buffered. `ahead`: as many blocks as run at once, which stay
/// for all rows.
template <typename Function>
cudaError_t launch_staged(const Function& function, int64_t steps, const RowPlan& plan,
                          LaunchShape shape, cudaStream_t stream) {
  const auto launch = [&](auto kernel, auto... more) {
    if (plan.ahead) {
      shape.blocks = std::min(steps, max_active_clusters(kernel, shape)) * plan.blocks;
    }
    return launch_kernel(kernel, shape, stream, function, steps, plan.blocks, more...);
  };
  if constexpr (kKernels<Function>.shared) {
    if (plan.lane_packs == 0) {
      return launch(shared_kernel<Function>,
                    static_cast<int>(plan.shared_bytes / sizeof(RawPack<Function::kInputs>) /
                                     static_cast<size_t>(plan.threads)));
    }
  }
  return with_lane_packs<kKernels<Function>.persistent>(
      plan.lane_packs, [&](auto packs) { return launch(persistent_kernel<packs, Function>); });
}

template <typename Function>
cudaError_t launch_block(Function function, int64_t rows, const RowPlan& plan,
                         cudaStream_t stream) {
  const int64_t steps = function.arrange(rows, 1);
  const LaunchShape shape{plan.tier,    plan.lane_packs, steps * plan.blocks,
                          plan.threads, plan.blocks,     plan.shared_bytes};
  if (plan.ahead || plan.lane_packs == 0) {
    return launch_staged(function, steps, plan, shape, stream);
  }
  const auto launch = [&](auto kernel) {
    return launch_kernel(kernel, shape, stream, function, plan.blocks);
  };
  if constexpr (kDrawsBeforeWait<Function>) {
    // Draw before the wait only if the grid is one wave; later waves should issue their loads
    // first.
    if (plan.lane_packs == 4 && function.draws_before_wait() && device_limits().dependent_launch &&
        shape.blocks <= device_limits().rows.multiprocessors) {
      draws_ahead_counter().add();
      return launch(block_kernel<4, Function, true>);
    }
  }
  return with_lane_packs<kKernels<Function>.block>(
      plan.lane_packs, [&](auto packs) { return launch(block_kernel<packs, Function>); });
}

/// The reads of a row's blocks leave partial results in `workspace`, from which the writes finish.
template <typename Function>
cudaError_t launch_stream(Function function, int64_t rows, const RowPlan& plan,
                          Workspace& workspace, cudaStream_t stream) {
  using Partial = typename Function::Partial;
  static_assert(sizeof(Partial) <= kSplitPartBytes);
  const int64_t steps = function.arrange(rows, 1);
  LaunchShape shape{Tier::stream, 0, steps * plan.blocks, plan.threads};
  auto* partials = static_cast<Partial*>(
      workspace.allocate(shape.blocks * static_cast<int64_t>(sizeof(Partial))));
  if constexpr (kKernels<Function>.cooperative) {
    if (plan.ahead) {
      const auto kernel = cooperative_kernel<Function>;
      LaunchShape resident = shape;
      resident.shared_bytes = plan.shared_bytes;
      resident.cooperative = true;
      // Where the process may use a part of the GPU only, the two kernels run in any number of
      // waves.
      if (max_active_clusters(kernel, resident) >= resident.blocks) {
        return launch_kernel(
            kernel, resident, stream, function, plan.blocks,
            static_cast<int>(plan.shared_bytes / sizeof(RawPack<Function::kInputs>) /
                             static_cast<size_t>(plan.threads)),
            partials);
      }
    }
  }
  const cudaError_t error =
      launch_split_read(reader_of(function), shape, plan.blocks, partials, stream);
  return error != cudaSuccess ? error
                              : launch_kernel(split_write_kernel<Function>, shape, stream, function,
                                              plan.blocks, static_cast<const Partial*>(partials));
}

/// Runs the function over [0, rows) as the plan says. The launch's error is the result.
template <typename Function>
cudaError_t launch_rows(const Function& function, int64_t rows, const RowPlan& plan,
                        Workspace& workspace, cudaStream_t stream) {
  if (!fits_packs<typename Function::T>(function.columns)) {
    return cudaErrorInvalidValue;
  }
  switch (plan.tier) {
    case Tier::warp:
      return launch_warp(function, rows, plan, stream);
    case Tier::chunk:
      if constexpr (kKernels<Function>.chunk) {
        return launch_chunk(function, rows, plan, stream);
      }
      return cudaErrorInvalidConfiguration;
    case Tier::span:
      if constexpr (IntervalTraits<Function>::kSupported) {
        return launch_span(function, rows, plan, stream);
      }
      return cudaErrorInvalidConfiguration;
    case Tier::stream:
      if constexpr (!kHasRules<Function> || kHasMaskTensor<Function>) {
        return launch_stream(function, rows, plan, workspace, stream);
      }
      return cudaErrorInvalidConfiguration;
    default:
      return launch_block(function, rows, plan, stream);
  }
}

/// launch_rows() with the plan that the table in use gives.
template <typename Function>
cudaError_t launch_rows(const Function& function, int64_t rows, Workspace& workspace,
                        cudaStream_t stream) {
  const RowPlan plan = current_plan(shape_of(function, rows), device_limits().rows);
  return launch_rows(function, rows, plan, workspace, stream);
}

}  // namespace warpfuse::cuda
