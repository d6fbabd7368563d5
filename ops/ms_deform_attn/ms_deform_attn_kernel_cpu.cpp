#include <vector>

#include "ms_deform_attn/ms_deform_attn.h"
#include "ms_deform_attn/sample_point.h"
#include "rowwise/cpu/dispatch.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {
namespace {

/// data[index] of a dtype that is known at run time.
template <typename C>
C load_as(const void* data, DType dtype, int64_t index) {
  C value = 0;
  dispatch(dtype, [&](auto zero) {
    value = static_cast<C>(static_cast<const decltype(zero)*>(data)[index]);
  });
  return value;
}

template <typename C>
void store_as(void* data, DType dtype, int64_t index, C value) {
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(data)[index] = static_cast<T>(value);
  });
}

/// Weights of a row's points: the given ones, or their softmax.
template <typename C>
void row_weights(const MsDeformAttnInputs& in, int64_t row, std::vector<C>& weights) {
  const int64_t count = in.sizes.row_points();
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = load_as<C>(in.attention_weights, in.weight_dtype, row * count + i);
  }
  if (in.softmax && count > 0) {
    C max = kNegativeInfinity<C>, sum = 0;
    for (const C logit : weights) {
      max = std::max(max, logit);
    }
    for (C& weight : weights) {
      weight = std::exp(weight - max);
      sum += weight;
    }
    for (C& weight : weights) {
      weight /= sum;
    }
  }
}

SampledLevel sampled_level(const MsDeformAttnInputs& in, int64_t level) {
  return {in.spatial_shapes, in.level_start_index, level, in.sizes.pixels};
}

template <typename C>
SamplePoint<C> sample_point(const MsDeformAttnInputs& in, const SampledLevel& level,
                            int64_t index) {
  return {level, in.sizes.pixels, load_as<C>(in.sampling_locations, in.location_dtype, 2 * index),
          load_as<C>(in.sampling_locations, in.location_dtype, 2 * index + 1)};
}

template <typename T>
void forward_rows(const MsDeformAttnArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const int64_t channels = sizes.channels, pixel_elements = sizes.pixel_elements();
  std::vector<C> weights(sizes.row_points());
  std::vector<SamplePoint<C>> points;
  points.reserve(sizes.row_points());
  for (int64_t row = begin; row < end; ++row) {
    const int64_t batch = row / (sizes.heads * sizes.queries), head = row % sizes.heads;
    const T* const value = static_cast<const T*>(in.value) + sizes.value_offset(batch, head);
    row_weights(in, row, weights);
    points.clear();
    for (int64_t level = 0; level < sizes.levels; ++level) {
      const SampledLevel pixels = sampled_level(in, level);
      for (int64_t i = level * sizes.points; i < (level + 1) * sizes.points; ++i) {
        points.push_back(sample_point<C>(in, pixels, row * sizes.row_points() + i));
      }
    }
    transform<T>(static_cast<T*>(arguments.output) + row * channels, channels, false,
                 [&](int64_t first, int64_t count) {
                   Pack<T> sum(C(0));
                   for (int64_t i = 0; i < sizes.row_points(); ++i) {
                     Pack<T> sampled(C(0));
                     for (int corner = 0; corner < 4; ++corner) {
                       if (const int64_t pixel = points[i].pixel[corner]; pixel >= 0) {
                         sampled =
                             sampled + Pack<T>(points[i].weight(corner)) *
                                           load(value + pixel * pixel_elements + first, count);
                       }
                     }
                     sum = sum + Pack<T>(weights[i]) * sampled;
                   }
                   return sum;
                 });
  }
}

/// sum over i of a[i] * b[i]
template <typename T>
Compute<T> dot(const T* a, const T* b, int64_t count) {
  return sum_of<T>(count, [&](int64_t i, int64_t n) { return load(a + i, n) * load(b + i, n); });
}

/// The points of one level, for all queries of a batch and a head.
template <typename T>
void backward_level(const MsDeformAttnBackwardArguments& arguments, int64_t batch, int64_t head,
                    int64_t level) {
  using C = Compute<T>;
  const MsDeformAttnInputs& in = arguments.inputs;
  const MsDeformAttnSizes& sizes = in.sizes;
  const int64_t channels = sizes.channels, pixel_elements = sizes.pixel_elements();
  const int64_t first_element = sizes.value_offset(batch, head);
  const T* const value = static_cast<const T*>(in.value) + first_element;
  C* const grad_value = static_cast<C*>(arguments.grad_value) + first_element;
  const SampledLevel pixels = sampled_level(in, level);
  const C width = static_cast<C>(pixels.width), height = static_cast<C>(pixels.height);
  std::vector<C> weights(sizes.row_points());
  for (int64_t query = 0; query < sizes.queries; ++query) {
    const int64_t row = (batch * sizes.queries + query) * sizes.heads + head;
    const T* const grad = static_cast<const T*>(arguments.grad_output) + row * channels;
    row_weights(in, row, weights);
    // The mean of the weights' gradients, which softmax's gradient subtracts.
    const C mean =
        in.softmax ? dot(grad, static_cast<const T*>(arguments.output) + row * channels, channels)
                   : C(0);
    for (int64_t i = level * sizes.points; i < (level + 1) * sizes.points; ++i) {
      const int64_t index = row * sizes.row_points() + i;
      const auto point = sample_point<C>(in, pixels, index);
      const C weight = weights[i];
      C corners[4] = {}, grad_weight = 0;  // products of the gradient with the corners' values
      for (int corner = 0; corner < 4; ++corner) {
        if (point.pixel[corner] < 0) {
          continue;
        }
        const int64_t at = point.pixel[corner] * pixel_elements;
        corners[corner] = dot(grad, value + at, channels);
        grad_weight += point.weight(corner) * corners[corner];
        for (int64_t c = 0; c < channels; ++c) {
          grad_value[at + c] += point.weight(corner) * (weight * static_cast<C>(grad[c]));
        }
      }
      const bool inside = !point.is_outside();
      store_as(arguments.grad_locations, in.location_dtype, 2 * index,
               inside ? weight * width * point.dx(corners) : C(0));
      store_as(arguments.grad_locations, in.location_dtype, 2 * index + 1,
               inside ? weight * height * point.dy(corners) : C(0));
      store_as(arguments.grad_weights, in.weight_dtype, index,
               in.softmax ? weight * (grad_weight - mean) : grad_weight);
    }
  }
}

}  // namespace

void ms_deform_attn_rows_cpu(const MsDeformAttnArguments& arguments, int64_t begin, int64_t end) {
  dispatch(arguments.inputs.dtype,
           [&](auto zero) { forward_rows<decltype(zero)>(arguments, begin, end); });
}

void ms_deform_attn_backward_cpu(const MsDeformAttnBackwardArguments& arguments, int64_t begin,
                                 int64_t end) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  dispatch(arguments.inputs.dtype, [&](auto zero) {
    for (int64_t task = begin; task < end; ++task) {
      backward_level<decltype(zero)>(arguments, task / (sizes.heads * sizes.levels),
                                     task / sizes.levels % sizes.heads, task % sizes.levels);
    }
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
