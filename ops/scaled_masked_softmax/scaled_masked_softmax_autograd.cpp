#include <ATen/TensorOperators.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/zeros_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>

#include <string>

#include "common/autograd_function.h"
#include "common/registration.h"
#include "rowwise/masked_tangent.h"
#include "rowwise/saved_masks.h"
#include "scaled_masked_softmax/scaled_masked_softmax.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

at::Tensor call_backward(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                         const OptionalTensor& attn_mask, const std::string& causal,
                         const OptionalTensor& query_positions, const OptionalTensor& key_lengths,
                         int64_t window, std::optional<double> masked_value) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, double, const OptionalTensor&, c10::string_view,
      const OptionalTensor&, const OptionalTensor&, int64_t, std::optional<double>)>(
      "warpfuse::_scaled_masked_softmax_backward");
  return op.call(grad_output, output, scale, attn_mask, causal, query_positions, key_lengths,
                 window, masked_value);
}

/// The gradient of the scores, times `factor` where the scale stands.
template <int kFirst>
at::Tensor backward_of(const SavedMasks<kFirst>& masks, const at::Tensor& grad_output,
                       const at::Tensor& output, double factor) {
  return call_backward(grad_output, output, factor, masks.attn_mask, masks.causal,
                       masks.query_positions, masks.key_lengths, masks.window, masks.masked_value);
}

// ds = scale * v * y * (g - sum(g * y)), v = 0 for hidden keys; a key with masked_value is hidden
// for the gradient, though its y is not zero.
class Backward : public AutogradFunction<Backward> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& grad_output,
                            const at::Tensor& output, double scale, const OptionalTensor& attn_mask,
                            const std::string& causal, const OptionalTensor& query_positions,
                            const OptionalTensor& key_lengths, int64_t window,
                            std::optional<double> masked_value) {
    at::AutoDispatchBelowADInplaceOrView below;
    SavedMasks<2>::save(context, {grad_output, output}, scale,
                        {attn_mask, causal, query_positions, key_lengths, window, masked_value});
    return call_backward(grad_output, output, scale, attn_mask, causal, query_positions,
                         key_lengths, window, masked_value);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const SavedMasks<2> masks(context, saved);
    const at::Tensor& g = saved[0];
    const at::Tensor& y = saved[1];
    at::Tensor gg = grads[0] * masks.scale;
    if (masks.masked_value.has_value() && masks.attn_mask.has_value()) {
      gg = gg.masked_fill(masks.attn_mask->logical_not(), 0);
    }
    const at::Tensor sum = (gg * y).sum(-1, true);
    variable_list result(9);
    result[0] = y * (gg - sum);
    result[1] = gg * (g - (g * y).sum(-1, true)) - g * sum;
    return result;
  }

  static variable_list jvp(const variable_list&, const variable_list& tangents, const at::Tensor& g,
                           const at::Tensor& y, double scale, const OptionalTensor& attn_mask,
                           const std::string& causal, const OptionalTensor& query_positions,
                           const OptionalTensor& key_lengths, int64_t window,
                           std::optional<double> masked_value) {
    at::Tensor result = tangents[0].defined()
                            ? call_backward(tangents[0], y, scale, attn_mask, causal,
                                            query_positions, key_lengths, window, masked_value)
                            : at::zeros_like(g);
    if (tangents[1].defined()) {
      const at::Tensor& t = tangents[1];
      at::Tensor part = scale * (t * (g - (g * y).sum(-1, true)) - y * (g * t).sum(-1, true));
      if (masked_value.has_value()) {
        part = part.masked_fill(attn_mask->logical_not(), 0);
      }
      result = result + part;
    }
    return {result};
  }
};

class Forward : public AutogradFunction<Forward> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, double scale,
                            const OptionalTensor& attn_mask, const std::string& causal,
                            const OptionalTensor& query_positions,
                            const OptionalTensor& key_lengths, int64_t window,
                            std::optional<double> masked_value) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor output = scaled_masked_softmax(
        scores, scale, attn_mask, causal, query_positions, key_lengths, window, masked_value);
    SavedMasks<1>::save(context, {output}, scale,
                        {attn_mask, causal, query_positions, key_lengths, window, masked_value});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const SavedMasks<1> masks(context, saved);
    const at::Tensor& output = saved[0];
    const at::Tensor& g = grads[0];
    variable_list result(8);
    if (context->needs_input_grad(0)) {
      result[0] = backward_of(masks, g, output, masks.scale);
    }
    if (masks.attn_mask.has_value() && masks.attn_mask->is_floating_point() &&
        context->needs_input_grad(1)) {
      // The gradient before the scale, summed over what was broadcast; in the mask's own dtype
      // throughout when that is the wider one.
      const at::Tensor& mask = *masks.attn_mask;
      const at::ScalarType type = at::promote_types(mask.scalar_type(), output.scalar_type());
      result[2] = backward_of(masks, g.to(type), output.to(type), 1.0)
                      .sum_to_size_symint(mask.sym_sizes())
                      .to(mask.scalar_type());
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor&, double scale, const OptionalTensor& attn_mask,
                           const std::string& causal, const OptionalTensor& query_positions,
                           const OptionalTensor& key_lengths, int64_t window,
                           std::optional<double> masked_value) {
    return {masked_softmax_tangent(
        outputs[0], tangents[0], tangents[2], scale,
        {attn_mask, causal, query_positions, key_lengths, window, masked_value})};
  }
};

at::Tensor forward_autograd(const at::Tensor& scores, double scale, const OptionalTensor& attn_mask,
                            c10::string_view causal, const OptionalTensor& query_positions,
                            const OptionalTensor& key_lengths, int64_t window,
                            std::optional<double> masked_value) {
  return Forward::apply(scores, scale, attn_mask, std::string(causal), query_positions, key_lengths,
                        window, masked_value);
}

at::Tensor backward_autograd(const at::Tensor& grad_output, const at::Tensor& output, double scale,
                             const OptionalTensor& attn_mask, c10::string_view causal,
                             const OptionalTensor& query_positions,
                             const OptionalTensor& key_lengths, int64_t window,
                             std::optional<double> masked_value) {
  return Backward::apply(grad_output, output, scale, attn_mask, std::string(causal),
                         query_positions, key_lengths, window, masked_value);
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("scaled_masked_softmax", forward_autograd);
  m.impl("_scaled_masked_softmax_backward", backward_autograd);
}

}  // namespace
}  // namespace warpfuse
