#include "common/counters.h"
#include "ms_deform_attn/deform_rows.cuh"

namespace warpfuse::cuda {
namespace {

/// Blocks per multiprocessor, for the register allocation: measured on an H200.
template <typename T>
constexpr int kForwardBlocks = std::is_same_v<T, float> ? 4 : 3;

/// Points of a warp's rows in shared memory: [points][rows of the warp], so that the rows' accesses
/// to their points of the same number touch different banks.
constexpr int kWarpPoints = 64;
template <typename C>
struct WarpPoints {
  struct alignas(16) Pixels {
    int corner[4];
  };
  struct alignas(16) Weights {
    C corner[4];
  };
  Pixels pixels[kWarpPoints];
  Weights weights[kWarpPoints];
};

/// Corners' weights are multiplied by the point's, which is the same for finite weights. This is
/// grid_sample's order, for rows with weights that are not: infinity times a value, not times a
/// corner's weight, which may be 0.
template <typename T, int kVector>
__device__ __forceinline__ void add_points_in_order(Compute<T> (&sum)[kVector],
                                                    const MsDeformAttnInputs& in, const T* value,
                                                    int64_t row, const RowWeights<T>& weights,
                                                    int first, int step) {
  using C = Compute<T>;
  for (int i = first; i < in.sizes.row_points(); i += step) {
    const auto point = sample_point<T>(in, sampled_level(in, i), row * in.sizes.row_points() + i);
    C sampled[kVector] = {};
    add_sample<T>(sampled, value, in.sizes.pixel_elements() * static_cast<int>(sizeof(T)),
                  point.pixel,
                  {point.weight(0), point.weight(1), point.weight(2), point.weight(3)});
    for (int c = 0; c < kVector; ++c) {
      sum[c] += weights[i] * sampled[c];
    }
  }
}

/// The lanes of a row compute its points once, in shared memory; then each group gathers corners,
/// 16 bytes per lane.
template <typename T, int kVector>
__global__ void __launch_bounds__(kDeformThreads, kForwardBlocks<T>)
    ms_deform_attn_kernel(const __grid_constant__ MsDeformAttnArguments arguments,
                          const __grid_constant__ DeformLanes lanes) {
  using C = Compute<T>;
  __shared__ WarpPoints<C> shared[kDeformThreads / 32];
  wait_for_previous_kernel();
  WarpPoints<C>& points = shared[threadIdx.x / 32];
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const int row_lanes = lanes.row_lanes(), warp_rows = lanes.warp_rows();
  const int slot = lanes.warp_row(), split = lanes.split();
  const LaneGroup row_group = lanes.row();
  const int batch_points = kWarpPoints / 32 * row_lanes;
  const int row_points = static_cast<int>(sizes.row_points());
  const int pixel_bytes = sizes.pixel_elements() * static_cast<int>(sizeof(T));
  const DeformRow at(sizes, lanes, blockIdx.x);
  const int64_t row = at.index(sizes);
  const RowWeights<T> weights(in, lanes, at.exists, row);
  for (int64_t first_channel = 0; first_channel < sizes.channels;
       first_channel += lanes.group() * kVector) {
    const int64_t channel = first_channel + lanes.channels().rank() * kVector;
    const bool has_channels = at.exists && channel < sizes.channels;
    const T* const value =
        static_cast<const T*>(in.value) + sizes.value_offset(at.batch, at.head) + channel;
    C sum[kVector] = {};
    bool is_finite = true;
    for (int first = 0; first < row_points; first += batch_points) {
      const int count = at.exists ? min(batch_points, row_points - first) : 0;
      __syncwarp();
      for (int i = row_group.rank(); i < count; i += row_lanes) {
        const auto point =
            sample_point<T>(in, sampled_level(in, first + i), row * row_points + first + i);
        const C weight = weights[first + i];
        is_finite = is_finite && isfinite(weight);
        const int entry = i * warp_rows + slot;
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          points.pixels[entry].corner[corner] = point.pixel[corner];
          points.weights[entry].corner[corner] = weight * point.weight(corner);
        }
      }
      __syncwarp();
      if (has_channels) {
#pragma unroll 2
        for (int i = split; i < count; i += lanes.splits()) {
          const auto pixels = points.pixels[i * warp_rows + slot];
          const auto corners = points.weights[i * warp_rows + slot];
          add_sample<T>(sum, value, pixel_bytes, pixels.corner, corners.corner);
        }
      }
    }
    if (row_group.any(!is_finite) && has_channels) {
      for (int c = 0; c < kVector; ++c) {
        sum[c] = 0;
      }
      add_points_in_order<T>(sum, in, value, row, weights, split, lanes.splits());
    }
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      for (int offset = lanes.group(); offset < row_lanes; offset *= 2) {
        sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], offset);
      }
    }
    if (has_channels && split == 0) {
      T* const output = static_cast<T*>(arguments.output) + row * sizes.channels + channel;
      if constexpr (kVector == 1) {
        *output = from_compute<T>(sum[0]);
      } else {
        store_16_bytes(output, pack_bits<T>(sum));
      }
    }
  }
}

Counter vector_branch("ms_deform_attn.vector"), scalar_branch("ms_deform_attn.scalar"),
    split_branch("ms_deform_attn.split");

template <typename T, int kVector>
cudaError_t launch(const MsDeformAttnArguments& arguments, cudaStream_t stream) {
  const DeformLanes lanes = deform_lanes(arguments.inputs.sizes, kVector);
  (kVector > 1 ? vector_branch : scalar_branch).add();
  if (lanes.splits() > 1) {
    split_branch.add();
  }
  return launch_deform(ms_deform_attn_kernel<T, kVector>, arguments, lanes, stream);
}

}  // namespace
}  // namespace warpfuse::cuda

namespace warpfuse {

cudaError_t launch_cuda(const MsDeformAttnArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  return cuda::dispatch(arguments.inputs.dtype, [&](auto zero) {
    using T = decltype(zero);
    return cuda::deform_is_vectorised(arguments.inputs, cuda::kPack<T>,
                                      {arguments.inputs.value, arguments.output})
               ? cuda::launch<T, cuda::kPack<T>>(arguments, stream)
               : cuda::launch<T, 1>(arguments, stream);
  });
}

}  // namespace warpfuse
