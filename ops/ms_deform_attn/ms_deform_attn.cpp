#include "ms_deform_attn/ms_deform_attn.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "common/check.h"
#include "common/parallel_rows.h"
#include "core/operator.h"
#include "ms_deform_attn/deform_inputs.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

constexpr const char* weights_name(bool softmax) {
  return softmax ? "attention_logits" : "attention_weights";
}

// --- checks -----------------------------------------------------------------------------------

void check_index(const char* op, const char* argument, const at::Tensor& tensor,
                 const DeformTensors& in, c10::SymIntArrayRef sizes) {
  check_tensor(op, argument, tensor);
  WARPFUSE_CHECK(tensor.scalar_type() == at::kLong, op, argument, "int64", tensor.scalar_type());
  check_shape(op, argument, tensor, sizes);
  check_same_device(op, argument, tensor, in.value);
}

void check_points(const char* op, const char* argument, const at::Tensor& tensor,
                  const DeformTensors& in, c10::SymIntArrayRef sizes) {
  check_floating(op, argument, tensor);
  WARPFUSE_CHECK(
      tensor.scalar_type() == in.value.scalar_type() || tensor.scalar_type() == at::kFloat, op,
      argument, c10::str("the value's dtype (", in.value.scalar_type(), ") or float32"),
      tensor.scalar_type());
  check_shape(op, argument, tensor, sizes);
  check_same_device(op, argument, tensor, in.value);
}

void check_deform(const char* op, const DeformTensors& in, bool softmax) {
  check_floating(op, "value", in.value);
  WARPFUSE_CHECK(in.value.dim() == 4, op, "value", "shape [B, S, H, D]", in.value.sym_sizes());
  const at::Tensor& shapes = in.spatial_shapes;
  check_tensor(op, "spatial_shapes", shapes);
  WARPFUSE_CHECK(shapes.dim() == 2, op, "spatial_shapes", "shape [L, 2]", shapes.sym_sizes());
  const at::Tensor& locations = in.sampling_locations;
  check_tensor(op, "sampling_locations", locations);
  WARPFUSE_CHECK(locations.dim() == 6, op, "sampling_locations", "shape [B, Q, H, L, P, 2]",
                 locations.sym_sizes());
  const auto value = in.value.sym_sizes();
  const c10::SymInt levels = shapes.sym_size(0), queries = locations.sym_size(1),
                    points = locations.sym_size(4);
  check_index(op, "spatial_shapes", shapes, in, {levels, 2});
  check_index(op, "level_start_index", in.level_start_index, in, {levels});
  check_points(op, "sampling_locations", locations, in,
               {value[0], queries, value[2], levels, points, 2});
  check_points(op, weights_name(softmax), in.attention_weights, in,
               {value[0], queries, value[2], levels, points});
}

/// The values of spatial_shapes and level_start_index, in memory of the CPU.
void check_levels(const char* op, const at::Tensor& shapes, const at::Tensor& starts,
                  int64_t pixels) {
  const auto* sizes = shapes.const_data_ptr<int64_t>();
  int64_t next = 0;
  for (int64_t level = 0; level < starts.numel(); ++level) {
    const int64_t height = sizes[2 * level], width = sizes[2 * level + 1];
    WARPFUSE_CHECK(height >= 0 && width >= 0, op, "spatial_shapes", "sizes of at least 0",
                   c10::str(height, " x ", width, " at level ", level));
    const int64_t start = starts.const_data_ptr<int64_t>()[level];
    WARPFUSE_CHECK(start == next, op, "level_start_index",
                   c10::str(next, " at level ", level, ", the pixels of the levels before it"),
                   start);
    WARPFUSE_CHECK(height == 0 || width <= (pixels - next) / height, op, "value",
                   c10::str("S of at least the sum of the levels' pixels"),
                   c10::str("S = ", pixels, ", with ", height, " x ", width, " pixels at level ",
                            level, " from ", next, " on"));
    next += height * width;
  }
}

constexpr int64_t kMaxPixelElements = 134'217'728;  // 2^27
/// Kernels on a GPU count a head's queries and a query's points in 32 bits, by whole warps.
constexpr int64_t kMaxGpuCount = INT32_MAX - 32;

template <typename Backend>
void check_data(const char* op, const DeformTensors& in, bool check_shapes) {
  if constexpr (Backend::kKey != c10::DispatchKey::Meta) {
    WARPFUSE_CHECK(in.value.size(1) < INT32_MAX, op, "value", "S below 2^31 - 1", in.value.size(1));
    WARPFUSE_CHECK(in.value.size(2) < kMaxPixelElements && in.value.size(3) < kMaxPixelElements &&
                       in.value.size(2) * in.value.size(3) < kMaxPixelElements,
                   op, "value", "H * D below 2^27", in.value.sizes());
    if (in.value.is_cuda()) {
      const at::Tensor& weights = in.attention_weights;
      const int64_t levels = weights.size(3), points = weights.size(4);
      WARPFUSE_CHECK(weights.size(1) <= kMaxGpuCount, op, "sampling_locations",
                     c10::str("at most ", kMaxGpuCount, " queries on a GPU"), weights.size(1));
      WARPFUSE_CHECK(levels == 0 || points <= kMaxGpuCount / levels, op, "sampling_locations",
                     c10::str("at most ", kMaxGpuCount, " points of a query and head on a GPU"),
                     c10::str(levels, " levels of ", points));
    }
    if (check_shapes || in.value.is_cpu()) {
      check_levels(op, in.spatial_shapes.cpu().contiguous(),
                   in.level_start_index.cpu().contiguous(), in.value.size(1));
    }
  }
}

// --- the kernels' view ------------------------------------------------------------------------

/// Contiguous, each pair of coordinates at a multiple of its size, as kernels read it.
at::Tensor in_pairs(const at::Tensor& locations) {
  at::Tensor dense = locations.contiguous();
  const bool aligned =
      reinterpret_cast<uintptr_t>(dense.const_data_ptr()) % (2 * dense.element_size()) == 0;
  return aligned ? dense : dense.clone();
}

/// Dense inputs, and the tensors that hold them.
struct DeformKernelInputs {
  at::Tensor value, shapes, starts, locations, weights;
  bool softmax;

  DeformKernelInputs(const DeformTensors& in, bool softmax)
      : value(in.value.contiguous()),
        shapes(in.spatial_shapes.contiguous()),
        starts(in.level_start_index.contiguous()),
        locations(in_pairs(in.sampling_locations)),
        weights(in.attention_weights.contiguous()),
        softmax(softmax) {}

  MsDeformAttnInputs arguments() const {
    return {value.const_data_ptr(),
            shapes.const_data_ptr<int64_t>(),
            starts.const_data_ptr<int64_t>(),
            locations.const_data_ptr(),
            weights.const_data_ptr(),
            to_dtype(value.scalar_type()),
            to_dtype(locations.scalar_type()),
            to_dtype(weights.scalar_type()),
            MsDeformAttnSizes{value.size(0), value.size(1), value.size(2), value.size(3),
                              locations.size(1), locations.size(3), locations.size(4)},
            softmax};
  }
};

// --- operators --------------------------------------------------------------------------------

template <bool kSoftmax>
struct MsDeformAttn {
  static constexpr const char* kName = kSoftmax ? "ms_deform_attn_softmax" : "ms_deform_attn";

  template <typename Backend>
  static at::Tensor run(const DeformTensors& in, bool check_shapes) {
    check_deform(kName, in, kSoftmax);
    check_data<Backend>(kName, in, check_shapes);
    const auto value = in.value.sym_sizes();
    at::Tensor output = Backend::empty(
        {value[0], in.sampling_locations.sym_size(1), value[2] * value[3]}, in.value.options());
    if (Backend::computes(output)) {
      const DeformKernelInputs inputs(in, kSoftmax);
      Backend::launch(in.value,
                      MsDeformAttnArguments{inputs.arguments(), output.mutable_data_ptr()});
    }
    return output;
  }
};

/// A power of two times which all finite terms of the value's gradient, and their sums, are int64:
/// a pixel gets at most a term per point of a level and query, none above |grad| * |weight|.
at::Tensor fixed_point_scale(const at::Tensor& grad_output, const DeformKernelInputs& inputs) {
  const auto max_of = [](const at::Tensor& tensor) {
    const at::Tensor size = tensor.to(at::kDouble).abs();
    return at::where(at::isfinite(size), size, 0.0).max();
  };
  const at::Tensor weight = inputs.softmax ? at::ones({}, grad_output.options().dtype(at::kDouble))
                                           : max_of(inputs.weights);
  const auto terms = static_cast<double>(inputs.locations.size(1) * inputs.locations.size(4));
  const at::Tensor bound = max_of(grad_output) * weight * terms;
  constexpr double kBits = 61.0, kMaxExponent = 1022.0;  // of both powers that are normal numbers
  const at::Tensor exponent = at::floor(kBits - bound.log2()).clamp(-kMaxExponent, kMaxExponent);
  return at::where(bound > 0.0, at::exp2(exponent), 1.0);
}

struct DeformBackward {
  static constexpr const char* kName = "_ms_deform_attn_backward";

  template <typename Backend>
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> run(const at::Tensor& grad_output,
                                                            const std::optional<at::Tensor>& output,
                                                            const DeformTensors& in) {
    const bool softmax = output.has_value() && output->defined();
    check_deform(kName, in, softmax);
    check_data<Backend>(kName, in, false);
    const auto value = in.value.sym_sizes();
    check_same_type(kName, "grad_output", grad_output, in.value);
    check_shape(kName, "grad_output", grad_output,
                {value[0], in.sampling_locations.sym_size(1), value[2] * value[3]});
    if (softmax) {
      check_alike(kName, "output", *output, grad_output);
    }
    if constexpr (Backend::kKey == c10::DispatchKey::Meta) {
      return {Backend::empty(value, in.value.options()),
              Backend::empty(in.sampling_locations.sym_sizes(), in.sampling_locations.options()),
              Backend::empty(in.attention_weights.sym_sizes(), in.attention_weights.options())};
    } else {
      const auto options = in.value.options().memory_format(std::nullopt);
      if (!Backend::computes(grad_output)) {
        return {at::zeros(in.value.sizes(), options),
                at::zeros(in.sampling_locations.sizes(), in.sampling_locations.options()),
                at::zeros(in.attention_weights.sizes(), in.attention_weights.options())};
      }
      const DeformKernelInputs inputs(in, softmax);
      at::Tensor grad_value = Backend::empty(value, options.dtype(statistics_dtype(in.value)));
      const at::Tensor grad = grad_output.contiguous();
      const at::Tensor dense_output = softmax ? output->contiguous() : at::Tensor();
      const at::Tensor grad_locations =
          Backend::empty(inputs.locations.sym_sizes(), inputs.locations.options());
      const at::Tensor grad_weights =
          Backend::empty(inputs.weights.sym_sizes(), inputs.weights.options());
      at::Tensor fixed, scale;  // the CPU's sums have one order
      if (in.value.is_cuda() && at::globalContext().deterministicAlgorithms() &&
          inputs.weights.numel() > 0) {
        fixed = Backend::empty(value, options.dtype(at::kLong));
        scale = fixed_point_scale(grad, inputs);
      }
      Backend::launch(
          in.value,
          MsDeformAttnBackwardArguments{
              inputs.arguments(), grad.const_data_ptr(),
              softmax ? dense_output.const_data_ptr() : nullptr, grad_value.mutable_data_ptr(),
              grad_locations.mutable_data_ptr(), grad_weights.mutable_data_ptr(),
              fixed.defined() ? fixed.mutable_data_ptr<int64_t>() : nullptr,
              scale.defined() ? scale.const_data_ptr<double>() : nullptr});
      if (fixed.defined()) {
        grad_value = grad_value + fixed.to(at::kDouble) / scale;
      }
      return {grad_value.to(in.value.scalar_type()), grad_locations, grad_weights};
    }
  }
};

WARPFUSE_OPERATORS(m) {
  register_operator<MsDeformAttn<false>>(m);
  register_operator<MsDeformAttn<true>>(m);
  register_operator<DeformBackward>(m);
}

}  // namespace

// --- the CPU ----------------------------------------------------------------------------------

void launch_cpu(const MsDeformAttnArguments& arguments) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  parallel_rows(
      sizes.rows(), 4 * sizes.row_points() * sizes.channels,
      [&](int64_t begin, int64_t end) { ms_deform_attn_rows_cpu(arguments, begin, end); });
}

void launch_cpu(const MsDeformAttnBackwardArguments& arguments) {
  const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
  const int64_t pixel_bytes =
      int64_t{sizes.pixel_elements()} * (arguments.inputs.dtype == DType::float64 ? 8 : 4);
  parallel_rows(sizes.batches * sizes.pixels, pixel_bytes, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(arguments.grad_value) + begin * pixel_bytes, 0,
                (end - begin) * pixel_bytes);
  });
  parallel_rows(
      sizes.batches * sizes.heads * sizes.levels, 8 * sizes.queries * sizes.points * sizes.channels,
      [&](int64_t begin, int64_t end) { ms_deform_attn_backward_cpu(arguments, begin, end); });
}

}  // namespace warpfuse
