#include "common/counters.h"
#include "ms_deform_attn/deform_rows.cuh"
#include "ms_deform_attn/row_weights.cuh"
#include "ms_deform_attn/sample_quad.cuh"

namespace warpfuse::cuda {
namespace {

/// Threads of a block, blocks per multiprocessor for the register allocation, and warps per
/// multiprocessor below which rows are split: measured on an H200.
constexpr int kThreads = 128, kWarps = 16;
template <typename T>
constexpr int kForwardBlocks = std::is_same_v<T, float> ? 8 : 6;

/// A point per lane of a warp, in shared memory: [rows][points + 1], so that neighbouring rows lie
/// in different banks.
template <typename C>
class WarpQuads {
 public:
  __device__ void set(int entry, const SampleQuad<C>& quad) {
    pixels_[entry] = {quad.first, quad.pitch};
    weights_[entry] = {{quad.weight[0], quad.weight[1], quad.weight[2], quad.weight[3]}};
  }

  /// sum += the interpolated channels at `entry` and `entry + step`, all eight loads in flight
  /// together. `next_value` is the pixel behind `value`, if there is one.
  template <typename T, int kVector>
  __device__ void add_to(C (&sum)[kVector], int entry, int step, const T* value,
                         const T* next_value, int pixel_bytes) const {
    Channels<T, kVector> corners[2][4];
    Weights weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Pixels pixels = pixels_[entry + i * step];
      weights[i] = weights_[entry + i * step];
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        corners[i][corner].load(pixel_address(
            corner % 2 == 0 ? value : next_value,
            corner / 2 == 0 ? pixels.first : pixels.first + pixels.pitch, pixel_bytes));
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        C values[kVector];
        corners[i][corner].values(values);
#pragma unroll
        for (int c = 0; c < kVector; ++c) {
          sum[c] += weights[i].corner[corner] * values[c];
        }
      }
    }
  }

 private:
  struct alignas(8) Pixels {
    int first, pitch;
  };
  struct alignas(16) Weights {
    C corner[4];
  };
  Pixels pixels_[64];
  Weights weights_[64];
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
      sum[c] += weights.at(row * in.sizes.row_points() + i) * sampled[c];
    }
  }
}

/// Whether all values are; where they are huge, no is an answer too.
template <typename C, int kVector>
__device__ __forceinline__ bool is_finite_sum(const C (&values)[kVector]) {
  C sum = 0;
#pragma unroll
  for (const C value : values) {
    sum += value;
  }
  return isfinite(sum);
}

/// Phase by phase: the lanes of a row compute a point each, in shared memory; then each group of
/// lanes gathers corners, 16 bytes per lane.
template <typename T, int kVector>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<T>)
    ms_deform_attn_kernel(const __grid_constant__ MsDeformAttnArguments arguments,
                          const __grid_constant__ DeformLanes lanes) {
  using C = Compute<T>;
  __shared__ WarpQuads<C> shared[kThreads / 32];
  wait_for_previous_kernel();
  WarpQuads<C>& quads = shared[threadIdx.x / 32];
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const int pixel_bytes = sizes.pixel_elements() * static_cast<int>(sizeof(T));
  const int slot = lanes.slot(), rank = lanes.row().rank(), row_lanes = lanes.row_lanes();
  const int first_entry = slot * (row_lanes + 1);
  const DeformRows rows(sizes, lanes);
  const int64_t row = rows.index(sizes, slot);
  const bool has_row = rows.has(sizes, slot);
  const int row_points = static_cast<int>(sizes.row_points());
  RowWeights<T> weights(in, lanes, has_row, row);
  for (int64_t first_channel = 0; first_channel < sizes.channels;
       first_channel += lanes.group() * kVector) {
    const int64_t channel = first_channel + lanes.channels().rank() * kVector;
    const bool has_channels = has_row && channel < sizes.channels;
    const T* const value =
        static_cast<const T*>(in.value) + sizes.value_offset(rows.batch, rows.head) + channel;
    const T* const next_value = pixel_address(value, sizes.pixels > 1 ? 1 : 0, pixel_bytes);
    C sum[kVector] = {}, weight_sum = 0;
    for (int first = 0; first < row_points; first += row_lanes) {
      const int point = first + rank;
      SampleQuad<C> quad;
      if (has_row && point < row_points) {
        const int64_t index = row * row_points + point;
        C x, y;
        load_pair_as<T, true>(in.sampling_locations, in.location_dtype, index, x, y);
        const C weight = weights.unnormalised(index);
        weight_sum += weight;
        quad = {sampled_level(in, point), static_cast<int>(sizes.pixels), x, y, weight};
      }
      __syncwarp();
      quads.set(first_entry + rank, quad);
      __syncwarp();
      if (has_channels && sizes.pixels > 0) {
        const int end = first_entry + min(row_points - first, row_lanes);
        for (int i = first_entry + lanes.split(); i < end; i += 2 * lanes.splits()) {
          quads.template add_to<T>(sum, i, lanes.splits(), value, next_value, pixel_bytes);
        }
      }
    }
    const C scale = weights.normalise(weight_sum);
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      sum[c] *= scale;
    }
    if (has_channels && (sizes.pixels == 0 || !is_finite_sum(sum))) {
      for (int c = 0; c < kVector; ++c) {
        sum[c] = 0;
      }
      add_points_in_order<T>(sum, in, value, row, weights, lanes.split(), lanes.splits());
    }
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      for (int offset = lanes.group(); offset < row_lanes; offset *= 2) {
        sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], offset);
      }
    }
    if (has_channels && lanes.split() == 0) {
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
  // Two lanes at least, so that a row's lanes have two points for each of its splits.
  const DeformLanes lanes = deform_lanes(arguments.inputs.sizes, kVector, 2, kWarps);
  (kVector > 1 ? vector_branch : scalar_branch).add();
  if (lanes.splits() > 1) {
    split_branch.add();
  }
  return launch_deform(ms_deform_attn_kernel<T, kVector>, arguments, lanes, kThreads, stream);
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
