#pragma once

#include "rowwise/cuda/in_shared.cuh"
#include "rowwise/cuda/strided.cuh"

namespace warpfuse::cuda {

// Tier column for blocks that stay for many tiles: while a tile is in their registers, the next one
// is copied to their shared memory. As the slots of a tile are written, those of the next one take
// their registers, and the copies of the one after that are started.

/// What the forward pass computes of a tile.
template <typename T, bool kLog>
struct StridedForward {
  using Element = T;
  using C = Compute<T>;
  static constexpr int kInputs = 1;
  static constexpr bool kMax = true;
  /// Exact exponentials of slots that hold nothing cost more than to ask which do.
  static constexpr bool kAsks = sizeof(T) >= 4;
  /// Exponentials take the place of the scores where they fit; else they are taken twice.
  static constexpr bool kKept = !kLog && sizeof(T) >= 4;

  const T* input;
  T* output;
  C scale;  // of softmax, before it is rounded

  __device__ const T* source(int) const { return input; }

  /// What a slot without an element holds, where add() does not ask whether it has one.
  __device__ static uint4 nothing() {
    C values[kPack<T>];
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      values[v] = negative_infinity<C>();
    }
    return pack_bits<T>(values);
  }

  __device__ static void look(const uint4 (&bits)[1], TilePartial<T>& found) {
    C values[kPack<T>];
    unpack<T>(bits[0], values);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      found.max[v] = larger(found.max[v], values[v]);
    }
  }
  __device__ static void add(uint4 (&bits)[1], TilePartial<T>& found) {
    C values[kPack<T>];
    unpack<T>(bits[0], values);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      values[v] = exponential<T>(values[v] -
                                 (found.max[v] == negative_infinity<C>() ? C(0) : found.max[v]));
      found.sum[v] += values[v];
    }
    if constexpr (kKept) {
      bits[0] = pack_bits<T>(values);
    }
  }
  /// Makes of what the tile found, and its warp, what write() needs.
  __device__ void finish(const TilePartial<T>& of_warp, TilePartial<T>& found) const {
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      const C kept = kKept ? rescale_factor<T>(of_warp.max[v] - found.max[v]) : C(1);
      found.sum[v] =
          kLog ? logarithm(found.sum[v] / kExponentialUnit<T>) : scale * kept / found.sum[v];
    }
  }
  __device__ void write(const uint4 (&bits)[1], const TilePartial<T>& found, int64_t at) const {
    C values[kPack<T>];
    unpack<T>(bits[0], values);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      values[v] = kKept  ? values[v] * found.sum[v]
                  : kLog ? (values[v] - found.max[v]) - found.sum[v]
                         : exponential<T>(values[v] - found.max[v]) * found.sum[v];
    }
    store_16_bytes(output + at, pack_bits<T>(values));
  }
};

/// What the backward pass computes of a tile.
template <typename T, bool kLog>
struct StridedBackward {
  using Element = T;
  using C = Compute<T>;
  static constexpr int kInputs = 2;
  static constexpr bool kMax = false, kAsks = false;

  const T* grad_output;
  const T* output;
  T* grad_input;

  __device__ const T* source(int plane) const { return plane == 0 ? grad_output : output; }

  __device__ static uint4 nothing() { return {0, 0, 0, 0}; }

  __device__ static void add(const uint4 (&bits)[2], TilePartial<T>& found) {
    C grads[kPack<T>], outputs[kPack<T>];
    unpack<T>(bits[0], grads);
    unpack<T>(bits[1], outputs);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      found.sum[v] += kLog ? grads[v] : grads[v] * outputs[v];
    }
  }
  __device__ static void finish(const TilePartial<T>&, TilePartial<T>& found) {
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      found.sum[v] /= kLog ? kExponentialUnit<T> : 1;
    }
  }
  __device__ void write(const uint4 (&bits)[2], const TilePartial<T>& found, int64_t at) const {
    C grads[kPack<T>], outputs[kPack<T>];
    unpack<T>(bits[0], grads);
    unpack<T>(bits[1], outputs);
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      grads[v] = kLog ? grads[v] - exponential<T>(outputs[v]) * found.sum[v]
                      : outputs[v] * (grads[v] - found.sum[v]);
    }
    store_16_bytes(grad_input + at, pack_bits<T>(grads));
  }
};

/// The elements of a tile that a thread has: slot i is `i * apart` after the first.
struct StridedTileSlots {
  int64_t first;
  int count;
};

/// A tile a block, or a cluster: kSlots columns in the registers of a thread, as many in its shared
/// memory.
template <typename Function, int kSlots>
__global__ void __launch_bounds__(512)
    strided_persistent_kernel(Function function, RowLayout layout, int width, int blocks,
                              int64_t tiles) {
  using T = typename Function::Element;
  using C = Compute<T>;
  constexpr int kVector = kPack<T>, kInputs = Function::kInputs;
  constexpr int kGroup = kSlots / kCopyGroups;
  extern __shared__ uint4 memory[];
  wait_for_previous_kernel();
  StridedTileGroup group(width, blocks);
  const Staging staging(memory, kSlots);
  const int64_t stride = group.groups();
  const int64_t apart = static_cast<int64_t>(blockDim.x) / width * blocks * layout.inner;

  const auto slots_of = [&](int64_t tile) -> StridedTileSlots {
    if (tile >= tiles) {
      return {0, 0};
    }
    const StridedTilePlace place(layout, tile, kVector, group);
    const int left = place.inside ? static_cast<int>(layout.columns) - place.depth : 0;
    return {place.offset + place.depth * layout.inner,
            left > 0 ? (left + place.depths - 1) / place.depths : 0};
  };
  const auto start = [&](const StridedTileSlots& slots, int i) {
    if (i < slots.count) {
#pragma unroll
      for (int plane = 0; plane < kInputs; ++plane) {
        copy_16_bytes_and_line(staging.at(i, plane),
                               function.source(plane) + slots.first + i * apart);
      }
    }
  };

  TilePartial<T> found;
  const auto clear = [&] {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      found.max[v] = negative_infinity<C>();
      found.sum[v] = C(0);
    }
  };
  uint4 bits[kSlots][kInputs];
  // Moves a group of slots of the tile `here` to registers, and starts the copies of the next tile.
  const auto take = [&](int first, const StridedTileSlots& here, const StridedTileSlots& next) {
    wait_for_copies<kCopyGroups - 1>();
#pragma unroll
    for (int i = first; i < first + kGroup; ++i) {
      if (i < here.count) {
#pragma unroll
        for (int plane = 0; plane < kInputs; ++plane) {
          bits[i][plane] = staging.load(i, plane);
        }
      } else if constexpr (!Function::kAsks) {
#pragma unroll
        for (int plane = 0; plane < kInputs; ++plane) {
          bits[i][plane] = Function::nothing();
        }
      }
      if constexpr (Function::kMax) {
        if (!Function::kAsks || i < here.count) {
          Function::look(bits[i], found);
        }
      }
      start(next, i);
    }
    commit_copies();
  };

  int64_t tile = group.index();
  StridedTileSlots here = slots_of(tile), next = slots_of(tile + stride);
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    start(here, i);
    if (i % kGroup == kGroup - 1) {
      commit_copies();
    }
  }
  clear();
#pragma unroll
  for (int first = 0; first < kSlots; first += kGroup) {
    take(first, here, next);
  }
  while (true) {
    if constexpr (Function::kMax) {
      group.of_warp(found.max, [](C a, C b) { return larger(a, b); });
    }
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (!Function::kAsks || i < here.count) {
        Function::add(bits[i], found);
      }
    }
    group.of_warp(found.sum, [](C a, C b) { return a + b; });
    TilePartial<T> total = found;
    group.template total<T, Function::kMax>(total);
    function.finish(found, total);
    const StridedTileSlots written = here;
    here = next;
    tile += stride;
    next = slots_of(tile + stride);
    clear();
#pragma unroll
    for (int first = 0; first < kSlots; first += kGroup) {
#pragma unroll
      for (int i = first; i < first + kGroup; ++i) {
        if (i < written.count) {
          function.write(bits[i], total, written.first + i * apart);
        }
      }
      take(first, here, next);
    }
    if (tile >= tiles) {
      return;
    }
  }
}

}  // namespace warpfuse::cuda
