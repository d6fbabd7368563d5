#include <ATen/TensorOperators.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include "core/autocast.h"
#include "core/autograd.h"
#include "ms_deform_attn/deform_inputs.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- gradients --------------------------------------------------------------------------------

struct DeformBackward
    : OnceDifferentiable<DeformBackward, std::tuple<at::Tensor, at::Tensor, at::Tensor>(
                                             const at::Tensor&, const std::optional<at::Tensor>&,
                                             const DeformTensors&)> {
  static constexpr const char* kName = "_ms_deform_attn_backward";
};

template <bool kSoftmax>
struct MsDeformAttn : AutogradNode<MsDeformAttn<kSoftmax>, at::Tensor(const DeformTensors&, bool)> {
  static constexpr const char* kName = kSoftmax ? "ms_deform_attn_softmax" : "ms_deform_attn";

  static void save(AutogradContext* context, const variable_list& outputs, const DeformTensors& in,
                   bool /*check_shapes*/) {
    context->save_for_backward({in.value, in.spatial_shapes, in.level_start_index,
                                in.sampling_locations, in.attention_weights,
                                kSoftmax ? outputs[0] : at::Tensor()});
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const auto [value, locations, weights] = DeformBackward::call(
        grads[0], kSoftmax ? std::optional<at::Tensor>(saved[5]) : std::nullopt,
        DeformTensors{saved[0], saved[1], saved[2], saved[3], saved[4]});
    return {value, at::Tensor(), at::Tensor(), locations, weights};
  }

  // Linear in the value and in the weights.
  static variable_list jvp(const variable_list& /*outputs*/, const variable_list& tangents,
                           const DeformTensors& in, bool /*check_shapes*/) {
    const at::Tensor weights =
        kSoftmax ? in.attention_weights.flatten(-2).softmax(-1).view_as(in.attention_weights)
                 : in.attention_weights;
    at::Tensor result;
    const auto add = [&](const at::Tensor& value, const at::Tensor& locations,
                         const at::Tensor& point_weights) {
      const at::Tensor part = MsDeformAttn<false>::call(
          {value, in.spatial_shapes, in.level_start_index, locations, point_weights}, false);
      result = result.defined() ? result + part : part;
    };
    if (tangents[0].defined()) {
      add(tangents[0], in.sampling_locations, weights);
    }
    if (const at::Tensor& t = tangents[3]; t.defined()) {
      // Between two pixels the value is linear: its slope is their difference. Half precision does
      // not tell the middles of neighbouring pixels apart.
      const at::ScalarType type = at::promote_types(t.scalar_type(), at::kFloat);
      const at::Tensor sizes = in.spatial_shapes.flip(-1).to(type).unsqueeze(1);
      const at::Tensor at = in.sampling_locations * sizes - 0.5, low = at.floor();
      for (const int64_t axis : {0, 1}) {
        const at::Tensor slope = weights * (t.select(-1, axis) * sizes.select(-1, axis));
        const at::Tensor other = at.select(-1, 1 - axis);
        for (const int64_t step : {0, 1}) {
          const at::Tensor moved = low.select(-1, axis) + step;
          const at::Tensor pixel =
              axis == 0 ? at::stack({moved, other}, -1) : at::stack({other, moved}, -1);
          add(in.value, (pixel + 0.5) / sizes, step == 1 ? slope : -slope);
        }
      }
    }
    if (const at::Tensor& t = tangents[4]; t.defined()) {
      add(in.value, in.sampling_locations,
          kSoftmax ? weights * (t - (weights * t).sum({-2, -1}, true)) : t);
    }
    return {result};
  }
};

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  MsDeformAttn<false>::register_in(m);
  MsDeformAttn<true>::register_in(m);
  DeformBackward::register_in(m);
}

// --- Autocast: value and weights take its dtype, locations keep their precision ---------------

template <bool kSoftmax, at::DeviceType kDevice>
at::Tensor autocast(const at::Tensor& value, const at::Tensor& spatial_shapes,
                    const at::Tensor& level_start_index, const at::Tensor& sampling_locations,
                    const at::Tensor& attention_weights, bool check_shapes) {
  const at::Tensor cast_value = AutocastTo<kDevice>()(value);
  const at::ScalarType dtype = cast_value.scalar_type();  // double stays double
  // float32 holds locations of the other half-precision dtype, and goes with any value.
  const at::Tensor locations = sampling_locations.scalar_type() == dtype
                                   ? sampling_locations
                                   : AutocastTo<kDevice>(at::kFloat)(sampling_locations);
  const AutocastTo<kDevice> cast(dtype);
  return MsDeformAttn<kSoftmax>::call(
      {cast_value, spatial_shapes, level_start_index, locations, cast(attention_weights)},
      check_shapes);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) {
  m.impl("ms_deform_attn", autocast<false, at::kCUDA>);
  m.impl("ms_deform_attn_softmax", autocast<true, at::kCUDA>);
}

WARPFUSE_LIBRARY_IMPL(AutocastCPU, m) {
  m.impl("ms_deform_attn", autocast<false, at::kCPU>);
  m.impl("ms_deform_attn_softmax", autocast<true, at::kCPU>);
}

}  // namespace
}  // namespace warpfuse
