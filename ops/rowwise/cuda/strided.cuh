#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/in_shared.cuh"
#include "rowwise/cuda/strided_functions.cuh"

namespace warpfuse::cuda {

// Tier column: softmax over a dimension that is not the last, one tile of neighbouring rows at a
// time. Function is StridedForward or StridedBackward.

/// Calls visit(i) for the slots of a thread that have an element, and, unless kSkips, for the rest
/// of the last step.
template <typename Function, int kSlots, typename Visit>
__device__ __forceinline__ void each_slot(int count, const Visit& visit) {
  constexpr int kStep = !Function::Vector::kIsPack ? 4 : kSlots == kColumnPacks ? 2 : kSlots;
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    if (i > 0 && i % kStep == 0 && i >= count) {
      return;
    }
    if (!Function::kSkips || i < count) {
      visit(i);
    }
  }
}

/// Reduces the elements of a tile that a thread holds in x; lane.max is known.
template <typename Function, int kSlots>
__device__ __forceinline__ typename Function::Partial reduce_tile(
    const Function& function, StridedTileGroup& group, int count,
    typename Function::Vector (&x)[kSlots][Function::kInputs], typename Function::Partial lane) {
  if constexpr (Function::kMax) {
    group.warp_max(lane.max);
  }
  each_slot<Function, kSlots>(count, [&](int i) { Function::add(x[i], lane); });
  group.warp_sum(lane.sum);
  auto total = group.lanes_of_warp() > 0 ? lane : group.template total<Function::kMax>(lane);
  function.finish(lane, total);
  return total;
}

/// One-shot: a block or a cluster holds one tile in registers, kSlots columns a thread.
template <typename Function, int kSlots>
__global__ void __launch_bounds__(512, Function::kMinBlocks)
    strided_kernel(Function function, RowLayout layout, int width, int lanes, int blocks) {
  using T = typename Function::T;
  using Vector = typename Function::Vector;
  constexpr int kInputs = Function::kInputs;
  wait_for_previous_kernel();
  StridedTileGroup group(width, lanes, blocks);
  const auto tile = lanes > 0
                        ? StridedTile::of_warps(layout, group.index(), Function::kVector, group)
                        : StridedTile(layout, group.index(), Function::kVector, group);
  const int64_t apart = group.depths() * layout.inner;
  Vector x[kSlots][kInputs];
  const T* from[kInputs];
#pragma unroll
  for (int input = 0; input < kInputs; ++input) {
    from[input] = function.inputs[input] + tile.first;
  }
  each_slot<Function, kSlots>(tile.count, [&](int i) {
#pragma unroll
    for (int input = 0; input < kInputs; ++input) {
      if constexpr (!Function::kSkips) {
        x[i][input] = Function::neutral();
      }
      if (i < tile.count) {
        x[i][input].load(from[input]);
      }
      from[input] += apart;
    }
  });
  auto lane = Function::Partial::none();
  if constexpr (Function::kMax) {
    Vector max = Vector::lowest();
    each_slot<Function, kSlots>(tile.count, [&](int i) { max.raise(x[i][0]); });
    max.get(lane.max);
  }
  const auto total = reduce_tile(function, group, tile.count, x, lane);
  T* to = function.output + tile.first;
  each_slot<Function, kSlots>(tile.count, [&](int i) {
    const Vector result = function.result(x[i], total);
    if (i < tile.count) {
      result.store(to);
    }
    to += apart;
  });
}

/// Persistent, double-buffered: while a tile is in registers, the next one is copied to shared
/// memory. As slots of a tile are written, those of the next tile take their registers, and the
/// copies of the tile after that start.
template <typename Function, int kSlots>
__global__ void __launch_bounds__(512, 1)
    strided_persistent_kernel(Function function, RowLayout layout, int width, int blocks,
                              int64_t tiles) {
  using Vector = typename Function::Vector;
  constexpr int kInputs = Function::kInputs;
  constexpr int kGroup = kSlots / kCopyGroups;
  extern __shared__ __align__(128) uint4 memory[];
  wait_for_previous_kernel();
  StridedTileGroup group(width, /*lanes=*/0, blocks);
  const Staging staging(memory, kSlots);
  const int64_t stride = group.groups();
  const int64_t apart = group.depths() * layout.inner;

  const auto tile_at = [&](int64_t index) {
    return index < tiles ? StridedTile(layout, index, Function::kVector, group) : StridedTile();
  };
  const auto start_copy = [&](const StridedTile& tile, int i) {
    if (i < tile.count) {
#pragma unroll
      for (int input = 0; input < kInputs; ++input) {
        copy_16_bytes_and_line(staging.at(i, input),
                               function.inputs[input] + tile.first + i * apart);
      }
    }
  };

  Vector max = Vector::lowest();
  Vector x[kSlots][kInputs];
  // Moves a copy group of `tile` to registers and starts the copies of the next tile.
  const auto load_next = [&](int first, const StridedTile& tile, const StridedTile& next) {
    wait_for_copies<kCopyGroups - 1>();
#pragma unroll
    for (int i = first; i < first + kGroup; ++i) {
      if (i < tile.count) {
#pragma unroll
        for (int input = 0; input < kInputs; ++input) {
          x[i][input].bits = staging.load(i, input);
        }
      } else if constexpr (!Function::kSkips) {
#pragma unroll
        for (int input = 0; input < kInputs; ++input) {
          x[i][input] = Function::neutral();
        }
      }
      if constexpr (Function::kMax) {
        if (!Function::kSkips || i < tile.count) {
          max.raise(x[i][0]);
        }
      }
      start_copy(next, i);
    }
    commit_copies();
  };

  int64_t index = group.index();
  StridedTile tile = tile_at(index), next = tile_at(index + stride);
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    start_copy(tile, i);
    if (i % kGroup == kGroup - 1) {
      commit_copies();
    }
  }
#pragma unroll
  for (int first = 0; first < kSlots; first += kGroup) {
    load_next(first, tile, next);
  }
  while (true) {
    auto lane = Function::Partial::none();
    if constexpr (Function::kMax) {
      max.get(lane.max);
      max = Vector::lowest();
    }
    const auto total = reduce_tile(function, group, tile.count, x, lane);
    const StridedTile written = tile;
    tile = next;
    index += stride;
    next = tile_at(index + stride);
#pragma unroll
    for (int first = 0; first < kSlots; first += kGroup) {
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) {
        if (i < written.count) {
          function.result(x[i], total).store(function.output + written.first + i * apart);
        }
      }
      load_next(first, tile, next);
    }
    if (index >= tiles) {
      return;
    }
  }
}

/// Two passes, for more columns than registers hold: each element is read twice.
template <typename Function>
__global__ void __launch_bounds__(512, 1)
    strided_two_pass_kernel(Function function, RowLayout layout, int width) {
  static_assert(Function::kVector == 1);
  using T = typename Function::T;
  wait_for_previous_kernel();
  StridedTileGroup group(width, /*lanes=*/0, 1);
  const StridedTile tile(layout, group.index(), 1, group);
  const int64_t apart = group.depths() * layout.inner;
  typename Function::Vector x[Function::kInputs];
  const auto load = [&](int i) {
#pragma unroll
    for (int input = 0; input < Function::kInputs; ++input) {
      x[input].load(function.inputs[input] + tile.first + i * apart);
    }
  };
  auto lane = Function::Partial::none();
  CascadeSum<Compute<T>> sum(0);
  for (int i = 0; i < tile.count; ++i) {
    load(i);
    if constexpr (Function::kMax) {
      const auto before = lane.max[0];
      typename Function::C value[1];
      x[0].get(value);
      lane.max[0] = larger(before, value[0]);
      if (lane.max[0] > before) {
        sum.scale(rescale_factor<T>(before - lane.max[0]));
      }
    }
    lane.sum[0] = 0;
    Function::add(x, lane);
    sum.add(lane.sum[0]);
  }
  auto warp = lane;
  warp.sum[0] = sum.value();
  if constexpr (Function::kMax) {
    group.warp_max(warp.max);
    warp.sum[0] = rescale<T>(warp.sum[0], lane.max[0], warp.max[0]);
  }
  group.warp_sum(warp.sum);
  auto total = group.template total<Function::kMax>(warp);
  function.finish(warp, total);
  for (int i = 0; i < tile.count; ++i) {
    load(i);
    function.result(x, total).store(function.output + tile.first + i * apart);
  }
}

}  // namespace warpfuse::cuda
