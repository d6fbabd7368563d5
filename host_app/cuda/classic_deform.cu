// warpfuse_host::classic_deform: multi-scale deformable attention as most public operators compute
// it, to be timed beside the plugin's. Forward: a thread for each channel of a query and head goes
// over all levels and points. Backward: a block for each query and head, atomic additions to the
// value's gradient, and sums over the block. Sums are float32 for half precision values.

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <cstdint>
#include <limits>
#include <tuple>

namespace warpfuse::host {
namespace {

constexpr int kThreads = 256;

struct Sizes {
  int batches, pixels, heads, channels, queries, levels, points;
};

template <typename T, typename C>
struct Inputs {
  const T* value;
  const int64_t* shapes;
  const int64_t* starts;
  const C* locations;
  const C* weights;
  Sizes sizes;
};

// The four pixels around a point, with their bilinear weights; -1 outside the level.
template <typename C>
struct Corners {
  int offset[4];
  C weight[4];
  C right, below;  // of the first corner, in [0, 1)

  __device__ Corners(C x, C y, int width, int height, int stride) {
    const int left = static_cast<int>(floor(x)), top = static_cast<int>(floor(y));
    right = x - left;
    below = y - top;
    for (int i = 0; i < 4; ++i) {
      const int column = left + i % 2, row = top + i / 2;
      const bool inside = column >= 0 && column < width && row >= 0 && row < height;
      offset[i] = inside ? (row * width + column) * stride : -1;
      weight[i] = (i % 2 == 0 ? 1 - right : right) * (i / 2 == 0 ? 1 - below : below);
    }
  }
};

// Calls work(level, index of the point, corners) for a row's points within their levels.
template <typename T, typename C, typename Work>
__device__ void for_each_point(const Inputs<T, C>& in, int row, const Work& work) {
  const Sizes& s = in.sizes;
  int point = row * s.levels * s.points;
  for (int level = 0; level < s.levels; ++level) {
    const int height = static_cast<int>(in.shapes[2 * level]);
    const int width = static_cast<int>(in.shapes[2 * level + 1]);
    for (int p = 0; p < s.points; ++p, ++point) {
      const C x = in.locations[2 * point] * width - C(0.5);
      const C y = in.locations[2 * point + 1] * height - C(0.5);
      if (x > -1 && y > -1 && x < width && y < height) {
        work(level, point, Corners<C>(x, y, width, height, s.heads * s.channels));
      }
    }
  }
}

// Of a row's image and head.
__device__ int first_element(const Sizes& s, int row, int channel) {
  const int head = row % s.heads, image = row / s.heads / s.queries;
  return (image * s.pixels * s.heads + head) * s.channels + channel;
}

template <typename T, typename C>
__global__ void __launch_bounds__(kThreads) forward_kernel(Inputs<T, C> in, T* output, int count) {
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) {
    return;
  }
  const Sizes& s = in.sizes;
  const int row = index / s.channels;
  const T* image = in.value + first_element(s, row, index % s.channels);
  C sum = 0;
  for_each_point(in, row, [&](int level, int point, const Corners<C>& at) {
    const T* pixels = image + in.starts[level] * s.heads * s.channels;
    C sampled = 0;
    for (int i = 0; i < 4; ++i) {
      sampled += at.offset[i] < 0 ? C(0) : at.weight[i] * static_cast<C>(pixels[at.offset[i]]);
    }
    sum += in.weights[point] * sampled;
  });
  output[index] = static_cast<T>(sum);
}

// The sum over the block's threads, any number of them.
template <typename C>
__device__ C block_sum(C mine, C* shared) {
  shared[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned count = blockDim.x; count > 1; count = (count + 1) / 2) {
    const unsigned half = (count + 1) / 2;
    if (threadIdx.x + half < count) {
      shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
  }
  const C sum = shared[0];
  __syncthreads();  // before it is written again
  return sum;
}

// The gradients are zeros before.
template <typename T, typename C>
__global__ void backward_kernel(Inputs<T, C> in, const T* grad_output, C* grad_value,
                                C* grad_locations, C* grad_weights) {
  extern __shared__ double memory[];  // a C for each thread
  C* shared = reinterpret_cast<C*>(memory);
  const Sizes& s = in.sizes;
  const int row = blockIdx.x, first = first_element(s, row, threadIdx.x);
  const C grad = static_cast<C>(grad_output[row * s.channels + threadIdx.x]);
  for_each_point(in, row, [&](int level, int point, const Corners<C>& at) {
    const int pixels = first + static_cast<int>(in.starts[level]) * s.heads * s.channels;
    const C of_sample = grad * in.weights[point];
    C corner[4] = {}, sampled = 0;
    for (int i = 0; i < 4; ++i) {
      if (at.offset[i] >= 0) {
        corner[i] = static_cast<C>(in.value[pixels + at.offset[i]]);
        sampled += at.weight[i] * corner[i];
        atomicAdd(grad_value + pixels + at.offset[i], at.weight[i] * of_sample);
      }
    }
    const C x = (corner[1] - corner[0]) * (1 - at.below) + (corner[3] - corner[2]) * at.below;
    const C y = (corner[2] - corner[0]) * (1 - at.right) + (corner[3] - corner[1]) * at.right;
    const C sum_x = block_sum(x * of_sample, shared), sum_y = block_sum(y * of_sample, shared);
    const C sum = block_sum(grad * sampled, shared);
    if (threadIdx.x == 0) {
      grad_locations[2 * point] = sum_x * static_cast<C>(in.shapes[2 * level + 1]);
      grad_locations[2 * point + 1] = sum_y * static_cast<C>(in.shapes[2 * level]);
      grad_weights[point] = sum;
    }
  });
}

// Calls work(inputs, T, C) with dense inputs, whose sizes the callers vouch for.
template <typename Work>
void with_inputs(const at::Tensor& value, const at::Tensor& shapes, const at::Tensor& starts,
                 const at::Tensor& locations, const at::Tensor& weights, const Work& work) {
  for (const at::Tensor& tensor : {value, locations, weights}) {
    TORCH_CHECK(tensor.is_contiguous() && tensor.numel() < std::numeric_limits<int>::max(),
                "classic_deform: expected dense tensors of fewer than 2^31 elements");
  }
  const auto size = [](const at::Tensor& tensor, int64_t dim) {
    return static_cast<int>(tensor.size(dim));
  };
  const Sizes sizes{size(value, 0),     size(value, 1),  size(value, 2),    size(value, 3),
                    size(locations, 1), size(shapes, 0), size(locations, 4)};
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, value.scalar_type(), "classic_deform", [&] {
        using C = at::opmath_type<scalar_t>;
        work(Inputs<scalar_t, C>{value.const_data_ptr<scalar_t>(), shapes.const_data_ptr<int64_t>(),
                                 starts.const_data_ptr<int64_t>(), locations.const_data_ptr<C>(),
                                 weights.const_data_ptr<C>(), sizes});
      });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor forward(const at::Tensor& value, const at::Tensor& shapes, const at::Tensor& starts,
                   const at::Tensor& locations, const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(value.device());
  at::Tensor output =
      at::empty({value.size(0), locations.size(1), value.size(2) * value.size(3)}, value.options());
  TORCH_CHECK(output.numel() < std::numeric_limits<int>::max() - kThreads,
              "classic_deform: expected an output of fewer than 2^31 elements");
  const int count = static_cast<int>(output.numel()), blocks = (count + kThreads - 1) / kThreads;
  with_inputs(value, shapes, starts, locations, weights,
              [&]<typename T, typename C>(const Inputs<T, C>& in) {
                forward_kernel<<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
                    in, output.mutable_data_ptr<T>(), count);
              });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& grad_output, const at::Tensor& value, const at::Tensor& shapes,
    const at::Tensor& starts, const at::Tensor& locations, const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(value.device());
  TORCH_CHECK(grad_output.is_contiguous() && value.size(3) <= 1024,
              "classic_deform_backward: expected a dense gradient, and at most 1024 channels");
  const at::Tensor sums = at::zeros(value.sizes(), locations.options());
  at::Tensor grad_locations = at::zeros_like(locations), grad_weights = at::zeros_like(weights);
  const auto rows = static_cast<unsigned>(value.size(0) * locations.size(1) * value.size(2));
  const auto channels = static_cast<unsigned>(value.size(3));
  with_inputs(
      value, shapes, starts, locations, weights,
      [&]<typename T, typename C>(const Inputs<T, C>& in) {
        backward_kernel<<<rows, channels, channels * sizeof(C), at::cuda::getCurrentCUDAStream()>>>(
            in, grad_output.const_data_ptr<T>(), sums.mutable_data_ptr<C>(),
            grad_locations.mutable_data_ptr<C>(), grad_weights.mutable_data_ptr<C>());
      });
  return {sums.to(value.scalar_type()), grad_locations, grad_weights};
}

}  // namespace
}  // namespace warpfuse::host

TORCH_LIBRARY_FRAGMENT(warpfuse_host, m) {
  m.def(
      "classic_deform(Tensor value, Tensor spatial_shapes, Tensor level_start_index, "
      "Tensor sampling_locations, Tensor attention_weights) -> Tensor");
  m.def(
      "classic_deform_backward(Tensor grad_output, Tensor value, Tensor spatial_shapes, "
      "Tensor level_start_index, Tensor sampling_locations, Tensor attention_weights) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(warpfuse_host, CUDA, m) {
  m.impl("classic_deform", warpfuse::host::forward);
  m.impl("classic_deform_backward", warpfuse::host::backward);
}
