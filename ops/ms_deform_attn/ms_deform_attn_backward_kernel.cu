#include "common/counters.h"
#include "ms_deform_attn/deform_rows.cuh"

namespace warpfuse::cuda {
namespace {

/// Threads of a block, and blocks per multiprocessor for the register allocation: measured on an
/// H200.
constexpr int kThreads = 256;
template <typename T>
constexpr int kBackwardBlocks = std::is_same_v<T, double> ? 3 : 4;

/// to[i] += terms[i], by one instruction per 16 bytes where the GPU has it.
template <int kVector>
__device__ __forceinline__ void add_atomically(float* to, const float (&terms)[kVector]) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kFours = kVector % 4 == 0;
#else
  constexpr bool kFours = false;
#endif
  if constexpr (kFours) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i), "f"(terms[i]),
                   "f"(terms[i + 1]), "f"(terms[i + 2]), "f"(terms[i + 3])
                   : "memory");
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      atomicAdd(to + i, terms[i]);
    }
  }
}
template <int kVector>
__device__ __forceinline__ void add_atomically(double* to, const double (&terms)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    atomicAdd(to + i, terms[i]);
  }
}

/// Sums of integers, infinities and NaN do not depend on the order of their terms.
template <typename C, int kVector>
__device__ __forceinline__ void add_in_any_order(int64_t* fixed, C* floating, double scale,
                                                 const C (&terms)[kVector]) {
  for (int i = 0; i < kVector; ++i) {
    if (isfinite(terms[i])) {
      atomicAdd(
          reinterpret_cast<unsigned long long*>(fixed + i),
          static_cast<unsigned long long>(__double2ll_rn(static_cast<double>(terms[i]) * scale)));
    } else {
      atomicAdd(floating + i, terms[i]);
    }
  }
}

/// Each group takes one of its row's points at a time: its corners' products with the gradient are
/// summed over the group, the corners' gradients added in memory.
template <typename T, int kVector>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<T>)
    ms_deform_attn_backward_kernel(const __grid_constant__ MsDeformAttnBackwardArguments arguments,
                                   const __grid_constant__ DeformLanes lanes) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const int split = lanes.split();
  const LaneGroup group = lanes.channels();
  const int64_t lane_channel = group.rank() * kVector, step = group.size() * kVector;
  const int row_points = static_cast<int>(sizes.row_points());
  const int pixel_elements = sizes.pixel_elements();
  const DeformRows rows(sizes, lanes);
  const int64_t row = rows.index(sizes, lanes.slot());
  const bool has_row = rows.has(sizes, lanes.slot());
  RowWeights<T> weights(in, lanes, has_row, row);
  weights.normalise();
  const int64_t channels = has_row ? sizes.channels : 0;
  const T* const grads = static_cast<const T*>(arguments.grad_output) + row * sizes.channels;
  C mean = 0;  // of the weights' gradients, which softmax's gradient subtracts
  if (in.softmax) {
    for (int64_t c = lane_channel; c < channels; c += step) {
      C grad[kVector], output[kVector];
      load_channels<T>(grads + c, grad);
      load_channels<T>(static_cast<const T*>(arguments.output) + row * sizes.channels + c, output);
      for (int i = 0; i < kVector; ++i) {
        mean += grad[i] * output[i];
      }
    }
    mean = group.sum(mean);
  }
  // The same number of rounds in all lanes of a warp, which shuffle together.
  for (int first = 0; first < row_points; first += lanes.splits()) {
    const int i = min(first + split, row_points - 1);
    const bool exists = has_row && first + split < row_points;
    const int64_t index = (has_row ? row : 0) * row_points + i;
    SampledLevel level = sampled_level(in, i);
    level.width = exists ? level.width : 0;
    const auto point = sample_point<T>(in, level, index);
    const C weight = exists ? weights.at(index) : C(0);
    C corners[4] = {};  // products of the gradient with the corners' values
    for (int64_t c = lane_channel; c < channels; c += step) {
      C grad[kVector];
      load_channels<T>(grads + c, grad);
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        if (point.pixel[corner] < 0) {
          continue;
        }
        const int64_t element = sizes.value_offset(rows.batch, rows.head) + c +
                                static_cast<int64_t>(point.pixel[corner]) * pixel_elements;
        C values[kVector], terms[kVector];
        load_channels<T>(static_cast<const T*>(in.value) + element, values);
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          corners[corner] += grad[v] * values[v];
          terms[v] = point.weight(corner) * (weight * grad[v]);
        }
        C* const grad_value = static_cast<C*>(arguments.grad_value) + element;
        if (arguments.fixed_grad_value == nullptr) {
          add_atomically(grad_value, terms);
        } else {
          add_in_any_order(arguments.fixed_grad_value + element, grad_value, *arguments.fixed_scale,
                           terms);
        }
      }
    }
    C grad_weight = 0;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {
      grad_weight += point.weight(corner) * corners[corner];
    }
    const C dx = group.sum(point.dx(corners));
    const C dy = group.sum(point.dy(corners));
    grad_weight = group.sum(grad_weight);
    if (exists && group.rank() == 0) {
      const bool inside = !point.is_outside();
      store_as<T>(arguments.grad_locations, in.location_dtype, 2 * index,
                  inside ? weight * static_cast<C>(level.width) * dx : C(0));
      store_as<T>(arguments.grad_locations, in.location_dtype, 2 * index + 1,
                  inside ? weight * static_cast<C>(level.height) * dy : C(0));
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
  const DeformLanes lanes = deform_lanes(arguments.inputs.sizes, kVector);
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
    return cuda::deform_is_vectorised(
               in, kVector,
               {in.value, arguments.output, arguments.grad_output, arguments.grad_value})
               ? cuda::launch<T, kVector>(arguments, stream)
               : cuda::launch<T, 1>(arguments, stream);
  });
}

}  // namespace warpfuse
