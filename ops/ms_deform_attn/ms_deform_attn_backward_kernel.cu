#include "common/counters.h"
#include "ms_deform_attn/add_terms.cuh"
#include "ms_deform_attn/deform_rows.cuh"
#include "ms_deform_attn/row_weights.cuh"

namespace warpfuse::cuda {
namespace {

/// Threads of a block, blocks per multiprocessor for the register allocation, and warps per
/// multiprocessor below which rows are split: measured on an H200.
constexpr int kThreads = 256, kWarps = 64;
template <typename T>
constexpr int kBackwardBlocks = std::is_same_v<T, double> ? 3 : 4;

/// A point in shared memory, and the products of the gradient with its corners' values.
template <typename C>
struct alignas(16) SharedPoint {
  WeightedCorners<C> corners;
  C products[4];
};

/// The lane's total of terms[rank % 4] over its group of at least four lanes.
template <typename C>
__device__ __forceinline__ C sum_transposed(const LaneGroup& group, const C (&terms)[4]) {
  const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x / 2 % 2 != 0;
  C low = odd ? terms[1] : terms[0], high = odd ? terms[3] : terms[2];
  low += __shfl_xor_sync(0xffffffffu, odd ? terms[0] : terms[1], 1);
  high += __shfl_xor_sync(0xffffffffu, odd ? terms[2] : terms[3], 1);
  C sum = upper ? high : low;
  sum += __shfl_xor_sync(0xffffffffu, upper ? low : high, 2);
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    const C other = __shfl_xor_sync(0xffffffffu, sum, offset);
    if (offset < group.size()) {
      sum += other;
    }
  }
  return sum;
}

/// Phase by phase: the lanes of a row compute a point each, in shared memory; then each group of
/// lanes reads corners, adds their terms of the value's gradient and sums their products with the
/// gradient over channels; last each lane computes the gradients of its point.
template <typename T, int kVector>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T>)
    ms_deform_attn_backward_kernel(const __grid_constant__ MsDeformAttnBackwardArguments arguments,
                                   const __grid_constant__ DeformLanes lanes) {
  using C = Compute<T>;
  // Per warp [rows][points + 1], so that neighbouring rows lie in different banks; 8 rows at most.
  __shared__ SharedPoint<C> shared[kThreads / 32][40];
  wait_for_previous_kernel();
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const LaneGroup group = lanes.channels();
  const int slot = lanes.slot(), rank = lanes.row().rank(), row_lanes = lanes.row_lanes();
  SharedPoint<C>* const points = shared[threadIdx.x / 32] + slot * (row_lanes + 1);
  const int row_points = static_cast<int>(sizes.row_points());
  const int channels = static_cast<int>(sizes.channels);
  const int lane_channel = group.rank() * kVector, step = group.size() * kVector;
  const DeformRows rows(sizes, lanes);
  const int64_t row = rows.index(sizes, slot);
  const bool has_row = rows.has(sizes, slot);
  RowWeights<T> weights(in, lanes, has_row, row);
  weights.normalise();
  const T* const grads = static_cast<const T*>(arguments.grad_output) + row * channels;
  C mean = 0;  // of the weights' gradients, which softmax's gradient subtracts
  if (in.softmax) {
    for (int c = lane_channel; has_row && c < channels; c += step) {
      C grad[kVector], output[kVector];
      load_channels<T>(grads + c, grad);
      load_channels<T>(static_cast<const T*>(arguments.output) + row * channels + c, output);
      for (int i = 0; i < kVector; ++i) {
        mean += grad[i] * output[i];
      }
    }
    mean = group.sum(mean);
  }
  for (int first = 0; first < row_points; first += row_lanes) {
    const int i = first + rank;
    const bool exists = has_row && i < row_points;
    const int64_t index = row * row_points + i;
    SampledLevel level;
    SamplePoint<C> point;
    C weight = 0;
    if (exists) {
      level = sampled_level(in, i);
      point = sample_point<T>(in, level, index);
      weight = weights.at(index);
    }
    __syncwarp();
    points[rank] = {{{point.pixel[0], point.pixel[1], point.pixel[2], point.pixel[3]},
                     {weight * point.weight(0), weight * point.weight(1), weight * point.weight(2),
                      weight * point.weight(3)}},
                    {}};
    __syncwarp();
    const int count = min(row_points - first, row_lanes);
    for (int chunk = 0; chunk < channels; chunk += step) {
      const int channel = chunk + lane_channel;
      const int least = has_row && channel < channels ? 0 : INT32_MAX;  // of a pixel that is read
      C grad[kVector] = {};
      if (least == 0) {
        load_channels<T>(grads + channel, grad);
      }
      const int64_t offset = sizes.value_offset(rows.batch, rows.head) + channel;
      const T* value = static_cast<const T*>(in.value) + offset;
      int pixel_bytes = sizes.pixel_elements() * static_cast<int>(sizeof(T));
      stay_in_registers(value, pixel_bytes);
      const ValueGradient<C, kVector> grad_value(arguments, offset);
      // As many rounds in all lanes of a warp, which shuffle together.
      SharedPoint<C>* shared_point = points + lanes.split();
      for (int round = 0; round < count; round += lanes.splits()) {
        const WeightedCorners<C> corners = shared_point->corners;
        Channels<T, kVector> loaded[4];
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          if (corners.pixel[corner] >= least) {
            loaded[corner].load(pixel_address(value, corners.pixel[corner], pixel_bytes));
          }
        }
        grad_value.add(corners, least, grad);
        C products[4] = {};
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          C values[kVector];
          loaded[corner].values(values);
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            products[corner] += grad[v] * values[v];
          }
        }
        const C product = sum_transposed(group, products);
        if (group.rank() < 4) {
          shared_point->products[group.rank()] += product;
        }
        shared_point += lanes.splits();
      }
    }
    __syncwarp();
    if (exists) {
      const auto& [corners, products] = points[rank];
      bool inside = false;  // by the shared pixels: the point's would take registers meanwhile
      C grad_weight = 0;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        inside |= corners.pixel[corner] >= 0;
        grad_weight += point.weight(corner) * products[corner];
      }
      const C slope_x = weight * static_cast<C>(level.width) * point.dx(products),
              slope_y = weight * static_cast<C>(level.height) * point.dy(products);
      store_pair_as<T>(arguments.grad_locations, in.location_dtype, index, inside ? slope_x : C(0),
                       inside ? slope_y : C(0));
      store_as<T>(arguments.grad_weights, in.weight_dtype, index,
                  in.softmax ? weight * (grad_weight - mean) : grad_weight);
    }
  }
}

Counter vector_branch("ms_deform_attn_backward.vector"),
    scalar_branch("ms_deform_attn_backward.scalar"),
    fixed_branch("ms_deform_attn_backward.deterministic");

/// The sums start at zero.
cudaError_t clear(const MsDeformAttnBackwardArguments& arguments, size_t sum_bytes,
                  cudaStream_t stream) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  const size_t elements = sizes.batches * sizes.pixels * sizes.pixel_elements();
  const cudaError_t error = cudaMemsetAsync(arguments.grad_value, 0, elements * sum_bytes, stream);
  if (error != cudaSuccess || arguments.fixed_grad_value == nullptr) {
    return error;
  }
  return cudaMemsetAsync(arguments.fixed_grad_value, 0, elements * sizeof(int64_t), stream);
}

template <typename T, int kVector>
cudaError_t launch(const MsDeformAttnBackwardArguments& arguments, cudaStream_t stream) {
  // Four lanes at least, one per corner's product.
  const DeformLanes lanes = deform_lanes(arguments.inputs.sizes, kVector, 4, kWarps);
  (kVector > 1 ? vector_branch : scalar_branch).add();
  if (arguments.fixed_grad_value != nullptr) {
    fixed_branch.add();
  }
  if (const cudaError_t error = clear(arguments, sizeof(Compute<T>), stream);
      error != cudaSuccess) {
    return error;
  }
  return launch_deform(ms_deform_attn_backward_kernel<T, kVector>, arguments, lanes, kThreads,
                       stream);
}

}  // namespace
}  // namespace warpfuse::cuda

namespace warpfuse {

cudaError_t launch_cuda(const MsDeformAttnBackwardArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  const MsDeformAttnInputs& in = arguments.inputs;
  return cuda::dispatch(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    // 16 bytes of sums: half precision values are read 8 bytes at a time.
    constexpr int kVector = cuda::kPack<cuda::Compute<T>>;
    // Sums of integers are added one at a time.
    return arguments.fixed_grad_value == nullptr &&
                   cuda::deform_is_vectorised(
                       in, kVector,
                       {in.value, arguments.output, arguments.grad_output, arguments.grad_value})
               ? cuda::launch<T, kVector>(arguments, stream)
               : cuda::launch<T, 1>(arguments, stream);
  });
}

}  // namespace warpfuse
