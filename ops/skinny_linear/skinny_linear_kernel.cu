#include <algorithm>

#include "common/launch_chain.cuh"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/group.cuh"
#include "skinny_linear/linear_forms.h"
#include "skinny_linear/norm_correction.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kMaxWarps = 16;
constexpr int kNormSteps = 4;

/// The packs of a row that a lane holds: pack `at(step)`, in steps that the warps share.
struct LanePacks {
  int warp, warps, packs;

  __device__ int at(int step) const { return (step * warps + warp) * kQuad + quad_rank(); }
  __device__ bool has(int step) const { return at(step) < packs; }
};

/// A block computes 8 outputs of every row. Its warps share the columns and hold all their weights
/// in registers, which arrive while the kernel ahead still runs.
template <typename T, int kSteps, int kRowGroups, bool kNorm>
__global__ void __launch_bounds__(kMaxWarps * 32)
    skinny_linear_kernel(const __grid_constant__ SkinnyLinearArguments a, bool continues_chain) {
  constexpr bool kShifts = kNorm && sizeof(T) == 4;
  constexpr int kRows = kRowGroup * kRowGroups;
  __shared__ float sums[kMaxWarps][kRows][kTileOutputs];
  __shared__ float norm_sums[kNorm ? kMaxWarps : 1][2][kTileOutputs];  // of w g and w b
  __shared__ RowMoments moments[kNorm ? kMaxWarps : 1][kRows];
  if (continues_chain) {
    launch_dependents();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, rows = static_cast<int>(a.rows);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const LanePacks lane{warp, warps, static_cast<int>(a.columns) / kPack<T>};
  const int64_t first_output = int64_t{blockIdx.x} * kTileOutputs;
  const int64_t output = first_output + quad();
  const auto* const weights = static_cast<const T*>(a.weight) + output * a.weight_stride;
  const auto* const input = static_cast<const T*>(a.input);
  const auto pack_of = [&](const void* vector, int step) {
    return static_cast<const T*>(vector) + lane.at(step) * kPack<T>;
  };
  uint4 w[kSteps] = {};
  const auto prepare_weights = [&] {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_16_bytes_if(output < a.outputs && lane.has(step), pack_of(weights, step), w[step]);
    }
    if constexpr (kNorm) {
      uint4 g[kSteps] = {}, b[kSteps] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        load_16_bytes_if(lane.has(step), pack_of(a.norm_weight, step), g[step]);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        load_16_bytes_if(lane.has(step) && quad() == 1 && a.norm_bias != nullptr,
                         pack_of(a.norm_bias, step), b[step]);
      }
      NormSums<T> sums;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        sums.add(w[step], g[step], b[step]);
      }
      sums.each([&](int vector, int column, float sum) { norm_sums[warp][vector][column] = sum; });
    }
  };
  if (continues_chain) {
    prepare_weights();
  }
  wait_for_previous_kernel();
  if (!continues_chain) {
    prepare_weights();
  }

  // Steps whose input is in registers, while those of the next batch are on their way.
  constexpr int kBatch = 4 / kRowGroups;
  using Batch = uint4[kBatch][kRowGroups];
  const auto load_batch = [&](int first, Batch& x) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int group = 0; group < kRowGroups; ++group) {
        const int row = group * kRowGroup + quad();
        x[i][group] = {};
        load_16_bytes_if(row < rows && lane.has(first + i),
                         pack_of(input + row * a.columns, first + i), x[i][group]);
      }
    }
  };
  Batch x[2];
  load_batch(0, x[0]);
  // The number that a row's moments are relative to.
  const auto shift_of = [&](int row) {
    return kNorm && a.norm == Norm::layer && row < rows ? to_compute(input[row * a.columns]) : 0.0f;
  };
  float shift[kRowGroups];
#pragma unroll
  for (int group = 0; group < kRowGroups; ++group) {
    shift[group] = shift_of(group * kRowGroup + quad());
  }
  // A thread each for the results: loads that the product does not wait for.
  const int row = static_cast<int>(threadIdx.x) / kTileOutputs;
  const int column = static_cast<int>(threadIdx.x) % kTileOutputs;
  const bool has_result = row < rows && first_output + column < a.outputs;
  const int64_t index = row * a.outputs + first_output + column;
  const float bias = has_result ? element_or_zero<T>(a.bias, first_output + column) : 0.0f;
  const float residual = has_result ? element_or_zero<T>(a.residual, index) : 0.0f;
  const float result_shift = shift_of(row);

  TileSums<T, kRowGroups> tile(rows);
  RowMoments of_lane[kRowGroups] = {};
#pragma unroll
  for (int first = 0; first < kSteps; first += kBatch) {
    Batch& now = x[first / kBatch % 2];
    if (first + kBatch < kSteps) {
      load_batch(first + kBatch, x[(first / kBatch + 1) % 2]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int group = 0; kNorm && group < kRowGroups; ++group) {
        if (lane.has(first + i)) {
          float values[kPack<T>];
          unpack<T>(now[i][group], values);
#pragma unroll
          for (float& value : values) {
            value -= shift[group];
            of_lane[group].add(value);
          }
          if constexpr (kShifts) {
            now[i][group] = pack_bits<T>(values);
          }
        }
      }
      tile.add(now[i], w[first + i]);
    }
  }
  tile.each(
      [&](int, int of_row, int of_column, float sum) { sums[warp][of_row][of_column] = sum; });
#pragma unroll
  for (int group = 0; kNorm && group < kRowGroups; ++group) {
    const RowMoments of_quad{quad_sum(of_lane[group].sum), quad_sum(of_lane[group].squares)};
    if (quad_rank() == 0) {
      moments[warp][group * kRowGroup + quad()] = of_quad;
    }
  }
  __syncthreads();
  if (has_result) {
    const auto sum_over_warps = [&](const auto& of_warp) {
      float sum = 0;
#pragma unroll 4
      for (int i = 0; i < warps; ++i) {
        sum += of_warp(i);
      }
      return sum;
    };
    float sum = sum_over_warps([&](int i) { return sums[i][row][column]; });
    if constexpr (kNorm) {
      RowMoments total{};
#pragma unroll 4
      for (int i = 0; i < warps; ++i) {
        total.add(moments[i][row]);
      }
      sum = RowNorm::of(total, a, kShifts ? 0.0f : result_shift)
                .corrected(sum, sum_over_warps([&](int i) { return norm_sums[i][0][column]; }),
                           sum_over_warps([&](int i) { return norm_sums[i][1][column]; }));
    }
    static_cast<T*>(a.output)[index] =
        from_compute<T>(activated(sum + bias, a.activation) + residual);
  }
}

// --- launch -----------------------------------------------------------------------------------

int64_t packs_of(const SkinnyLinearArguments& a) { return a.columns * element_bytes(a.dtype) / 16; }

/// Warps that hold a row in `steps` steps, and have a thread for each result.
int64_t warps_for(const SkinnyLinearArguments& a, int steps) {
  constexpr int64_t kMinWarps = kMaxSkinnyRows * kTileOutputs / 32;
  return std::max(kMinWarps, (packs_of(a) + steps * kQuad - 1) / (steps * kQuad));
}

template <typename T, int kSteps, int kRowGroups, bool kNorm>
cudaError_t launch(const SkinnyLinearArguments& a, cudaStream_t stream) {
  const LaunchShape shape{Tier::tile, kSteps, (a.outputs + kTileOutputs - 1) / kTileOutputs,
                          static_cast<int>(warps_for(a, kSteps)) * 32};
  return launch_in_chain<skinny_linear_kernel<T, kSteps, kRowGroups, kNorm>>(shape, stream, a);
}

template <typename T, int kSteps, bool kNorm>
cudaError_t launch(const SkinnyLinearArguments& a, cudaStream_t stream) {
  return a.rows <= kRowGroup ? launch<T, kSteps, 1, kNorm>(a, stream)
                             : launch<T, kSteps, 2, kNorm>(a, stream);
}

template <typename T>
cudaError_t launch(const SkinnyLinearArguments& a, cudaStream_t stream) {
  if (a.norm != Norm::none) {
    return launch<T, kNormSteps, true>(a, stream);
  }
  if (warps_for(a, 4) <= kMaxWarps) {
    return launch<T, 4, false>(a, stream);
  }
  return warps_for(a, 8) <= kMaxWarps ? launch<T, 8, false>(a, stream)
                                      : launch<T, 16, false>(a, stream);
}

}  // namespace

bool fits_skinny_linear_cuda(const SkinnyLinearArguments& a) {
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  const int64_t pack = 16 / element_bytes(a.dtype);
  const int max_steps = a.norm == Norm::none ? 16 : kNormSteps;
  if (a.columns % pack != 0 || a.weight_stride % pack != 0 || !aligned(a.input) ||
      !aligned(a.weight) || !aligned(a.norm_weight) || !aligned(a.norm_bias)) {
    return false;
  }
  if (a.rows > kMaxSkinnyRows) {
    return is_wide(a) ? fits_streamed_linear(a) : fits_tiled_linear(a);
  }
  return is_wide(a) ? fits_wide_linear(a) : warps_for(a, max_steps) <= kMaxWarps;
}

cudaError_t launch_cuda(const SkinnyLinearArguments& a, Workspace& workspace, cudaStream_t stream) {
  if (a.rows > kMaxSkinnyRows) {
    return is_wide(a) ? launch_streamed_linear(a, workspace, stream)
                      : launch_tiled_linear(a, stream);
  }
  if (is_wide(a)) {
    return launch_wide_linear(a, workspace, stream);
  }
  return dispatch_narrow(a.dtype, [&](auto zero) { return launch<decltype(zero)>(a, stream); });
}

}  // namespace warpfuse
