#pragma once

#include <algorithm>
#include <bit>

#include "rowwise/cuda/chunk.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/kernel_launch.h"
#include "rowwise/cuda/row_kind.cuh"
#include "rowwise/cuda/units.cuh"
#include "rowwise/tier_counters.h"
#include "rowwise/tuning.h"

namespace warpfuse::cuda {

// Launches of the tier chunk.

template <int kElements, int kSlots, int kLanes, bool kGap, typename Function>
cudaError_t launch_units(const Function& function, int64_t rows, int gap, cudaStream_t stream,
                         int lanes = kLanes) {
  const int64_t threads = rows * lanes;
  units_counter().add();
  return launch_kernel(unit_kernel<kElements, kSlots, kLanes, kGap, Function>,
                       {Tier::chunk, chunk_slots(kKind<Function>),
                        (threads + kUnitThreads - 1) / kUnitThreads, kUnitThreads},
                       stream, function, rows, std::countr_zero(static_cast<unsigned>(lanes)), gap);
}

template <bool kGap = false, typename Function>
cudaError_t launch_chunk(Function function, int64_t rows, const RowPlan& plan, cudaStream_t stream,
                         int gap = 0) {
  if constexpr (kTakesUnits<Function> && sizeof(typename Function::T) == 2 && !kGap) {
    if (takes_words(function)) {
      constexpr WordRows kRows = kWordRows<Function>;
      return launch_units<2, kRows.slots, kRows.lanes, false>(function, rows, 0, stream);
    }
  }
  constexpr int kBusyWarps = 16;  // of a multiprocessor
  // Rules cost a chunk as much as some elements do; two inputs or a mask tensor take room.
  constexpr int kBytes = !kHasRules<Function>                              ? 2048
                         : kRulesAlone<Function> && Function::kInputs == 1 ? 3500
                                                                           : 3000;
  constexpr int kSlots = chunk_slots(kKind<Function>);
  const auto chunk_gap =
      ChunkGap::of<typename Function::T>(gap, static_cast<int>(function.columns));
  const auto chunk = ChunkShape::of<typename Function::T>(
      rows, static_cast<int>(function.columns), plan.lanes, kSlots,
      int64_t{kBusyWarps} * device_limits().rows.multiprocessors, kBytes,
      kRulesAlone<Function> && !kGap, chunk_gap.pitch);
  const int64_t steps = function.arrange(rows, 0);
  ChunkMaskShape mask;
  if constexpr (kHasMaskTensor<Function>) {
    const auto& key_mask = function.key_mask();
    mask = ChunkMaskShape::of(key_mask.runs(rows), chunk.rows, static_cast<int>(function.columns),
                              key_mask.element_bytes(), chunk.behind);
  }
  const size_t warp_bytes = sizeof(uint4) * static_cast<size_t>(Function::kInputs * chunk.packs) +
                            static_cast<size_t>(mask.bytes) +
                            (kDrops<Function> ? sizeof(unsigned) * chunk.keep_words : 0);
  // One warp has room on every GPU: 86 KB at most, for rows of 1000 elements of half precision with
  // a float32 mask in two runs.
  const size_t room = lower(device_limits().rows, tuning()).shared_bytes;
  const int warps = static_cast<int>(
      std::clamp<size_t>(room / warp_bytes, 1, static_cast<size_t>(plan.threads) / 32));
  const int64_t block_rows = int64_t{warps} * chunk.rows;
  const LaunchShape shape{
      Tier::chunk, plan.lane_packs,   (steps + block_rows - 1) / block_rows, 32 * warps,
      1,           warps * warp_bytes};
  return launch_kernel(chunk_kernel<kSlots, kGap, Function>, shape, stream, function, steps, chunk,
                       mask, chunk_gap);
}

/// Runs rows with gaps by units of kElements elements.
template <int kElements, size_t kForm = 0, typename Function>
cudaError_t launch_gap_units(const Function& function, int64_t rows, int gap, cudaStream_t stream) {
  if constexpr (kForm < kGapForms.size()) {
    constexpr GapForm form = kGapForms[kForm];
    return function.columns > form.columns
               ? launch_gap_units<kElements, kForm + 1>(function, rows, gap, stream)
               : launch_units<kElements, form.slots, form.lanes / kElements, true>(function, rows,
                                                                                   gap, stream);
  } else {
    return launch_units<kElements, kManySlots / kElements, 0, true>(
        function, rows, gap, stream, many_slots_lanes(function.columns));
  }
}

/// Runs a function whose rows have a gap of elements behind each, of up to kMaxGapColumns columns:
/// by units, or by the tier chunk.
template <typename Function>
cudaError_t launch_rows_with_gap(const Function& function, int64_t rows, int gap,
                                 cudaStream_t stream) {
  using T = typename Function::T;
  if constexpr (kTakesUnits<Function>) {
    const bool words =
        function.columns % kWord<T> == 0 && gap % kWord<T> == 0 && function.begins_at_words();
    if (takes_gap_units(function.columns, words ? sizeof(unsigned) : sizeof(T))) {
      return words ? launch_gap_units<kWord<T>>(function, rows, gap, stream)
                   : launch_gap_units<1>(function, rows, gap, stream);
    }
  }
  if constexpr (kKernels<Function>.chunk) {
    constexpr int kSlots = chunk_slots(kKind<Function>);
    // A row may begin in the middle of a word.
    const auto slots = static_cast<unsigned>(function.columns + kWord<T> - 1);
    const auto lanes = std::bit_ceil((slots + kSlots - 1) / kSlots);
    const RowPlan plan{Tier::chunk, static_cast<int>(lanes), kSlots, 64, 1, false, 0};
    return launch_chunk<true>(function, rows, plan, stream, gap);
  }
  return cudaErrorInvalidConfiguration;
}

}  // namespace warpfuse::cuda
