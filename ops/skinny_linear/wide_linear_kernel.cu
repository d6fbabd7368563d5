#include <algorithm>

#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "skinny_linear/linear_forms.h"
#include "skinny_linear/ranked_output.cuh"
#include "skinny_linear/staged_rows.cuh"

namespace warpfuse::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kDepth = 8;  // packs of weights that a lane has in flight

/// A warp's weights: tiles of 8 outputs, in parts of kDepth steps.
struct TileParts {
  const SkinnyLinearArguments& a;
  int packs, parts;

  template <typename T>
  __device__ __forceinline__ void load(int of_tile, int part, uint4 (&w)[kDepth], T) const {
    const int64_t output = int64_t{of_tile} * kTileOutputs + quad();
    const auto* const row = static_cast<const T*>(a.weight) + output * a.weight_stride;
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const int pack = (part * kDepth + i) * kQuad + quad_rank();
      w[i] = {};
      load_16_bytes_if(output < a.outputs && pack < packs, row + pack * kPack<T>, w[i]);
    }
  }
};

template <typename T, int kRowGroups, bool kArgmax>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerMultiprocessor)
    wide_linear_kernel(const __grid_constant__ SkinnyLinearArguments a,
                       unsigned long long* partials, bool continues_chain) {
  extern __shared__ uint4 memory[];
  __shared__ unsigned long long best_of_block[kRowGroup * kRowGroups];
  using Sums = TileSums<T, kRowGroups>;
  if (continues_chain) {
    launch_dependents();
  }
  const int rows = static_cast<int>(a.rows), packs = static_cast<int>(a.columns) / kPack<T>;
  const int tiles = static_cast<int>((a.outputs + kTileOutputs - 1) / kTileOutputs);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int step = static_cast<int>(gridDim.x) * kWarps;
  const TileParts weights{a, packs, (packs + kDepth * kQuad - 1) / (kDepth * kQuad)};
  int tile = static_cast<int>(blockIdx.x) * kWarps + warp;
  uint4 w[kDepth];
  const StagedRows<T> staged(a, memory);
  const auto load_weights = [&] {
    weights.load(tile, 0, w, T());
    staged.copy_vectors();
  };
  if (continues_chain) {
    load_weights();
  }
  wait_for_previous_kernel();
  if (!continues_chain) {
    load_weights();
  }
  staged.copy_rows();
  if (threadIdx.x < kRowGroup * kRowGroups) {
    best_of_block[threadIdx.x] = 0;
  }
  staged.normalise();

  unsigned long long best[Sums::kSlots] = {};
  for (; tile < tiles; tile += step) {
    Sums sums(rows);
    for (int part = 0; part < weights.parts; ++part) {
      const bool is_last = part + 1 == weights.parts;
      uint4 next[kDepth];
      weights.load(is_last ? tile + step : tile, is_last ? 0 : part + 1, next, T());
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const int pack = (part * kDepth + i) * kQuad + quad_rank();
        uint4 x[kRowGroups] = {};
#pragma unroll
        for (int group = 0; group < kRowGroups; ++group) {
          const int row = group * kRowGroup + quad();
          if (row < rows && pack < packs) {
            x[group] = staged.at(row, pack);
          }
        }
        sums.add(x, w[i]);
        w[i] = next[i];
      }
    }
    sums.each([&](int slot, int row, int column, float sum) {
      const int64_t output = int64_t{tile} * kTileOutputs + column;
      if (row < rows && output < a.outputs) {
        const int64_t index = row * a.outputs + output;
        const float value = activated(sum + element_or_zero<T>(a.bias, output), a.activation) +
                            element_or_zero<T>(a.residual, index);
        if constexpr (kArgmax) {
          best[slot] = max(best[slot], ranked(key_of(from_compute<T>(value)), output));
        } else {
          static_cast<T*>(a.output)[index] = from_compute<T>(value);
        }
      }
    });
  }
  if constexpr (kArgmax) {
    Sums(rows).each([&](int slot, int row, int, float) {
      if (row < rows) {
        atomicMax(&best_of_block[row], best[slot]);
      }
    });
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < rows) {
      partials[int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = best_of_block[threadIdx.x];
    }
  }
}

// --- launch -----------------------------------------------------------------------------------

template <typename T, int kRowGroups>
cudaError_t launch(const SkinnyLinearArguments& a, Workspace& workspace, cudaStream_t stream) {
  const int64_t tiles = (a.outputs + kTileOutputs - 1) / kTileOutputs;
  const int64_t resident = int64_t{device_limits().rows.multiprocessors} * kBlocksPerMultiprocessor;
  LaunchShape shape{Tier::tile, kDepth, std::min(resident, (tiles + kWarps - 1) / kWarps),
                    kWarps * 32};
  shape.shared_bytes = staged_bytes(a);
  using Partials = unsigned long long*;
  if (a.tokens == nullptr) {
    return launch_in_chain<wide_linear_kernel<T, kRowGroups, false>>(shape, stream, a, Partials());
  }
  const auto partials =
      static_cast<Partials>(workspace.allocate(a.rows * shape.blocks * sizeof(*Partials())));
  const cudaError_t error =
      launch_in_chain<wide_linear_kernel<T, kRowGroups, true>>(shape, stream, a, partials);
  if (error != cudaSuccess) {
    return error;
  }
  return launch_best_token<T>(a, partials, shape.blocks, stream);
}

}  // namespace

bool is_wide(const SkinnyLinearArguments& a) {
  constexpr int64_t kMinOutputs = 8192;
  return a.tokens != nullptr || a.outputs >= kMinOutputs;
}

bool fits_wide_linear(const SkinnyLinearArguments& a) {
  // Of two blocks per multiprocessor, on the smallest of the GPUs.
  constexpr int64_t kMaxSharedBytes = int64_t{46} * 1024;
  const int64_t packs = a.columns * element_bytes(a.dtype) / 16;
  return staged_bytes(a) <= kMaxSharedBytes && (a.norm == Norm::none || packs <= kMaxStagedPacks) &&
         a.outputs <= INT32_MAX;
}

cudaError_t launch_wide_linear(const SkinnyLinearArguments& a, Workspace& workspace,
                               cudaStream_t stream) {
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return a.rows <= kRowGroup ? launch<T, 1>(a, workspace, stream)
                               : launch<T, 2>(a, workspace, stream);
  });
}

}  // namespace warpfuse::cuda
