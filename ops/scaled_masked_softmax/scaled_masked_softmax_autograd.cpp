#include <ATen/TensorOperators.h>
#include <ATen/ops/promote_types.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "attention_mask/mask_arguments.h"
#include "common/random.h"
#include "core/autograd.h"
#include "rowwise/row_tensors.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

// --- what a node saves ------------------------------------------------------------------------

void save(AutogradContext* context, variable_list tensors, double scale,
          const MaskArguments& masks) {
  for (const OptionalTensor* mask :
       {&masks.attn_mask, &masks.query_positions, &masks.key_lengths}) {
    tensors.push_back(mask->value_or(at::Tensor()));
  }
  context->save_for_backward(std::move(tensors));
  context->saved_data["scale"] = scale;
  context->saved_data["causal"] = masks.causal;
  context->saved_data["window"] = masks.window;
  context->saved_data["masked_value"] = masks.masked_value;
}

struct Saved {
  explicit Saved(AutogradContext* context)
      : tensors(context->get_saved_variables()),
        scale(context->saved_data["scale"].toDouble()),
        masks(*(tensors.end() - 3), context->saved_data["causal"].toStringRef(),
              *(tensors.end() - 2), *(tensors.end() - 1), context->saved_data["window"].toInt(),
              context->saved_data["masked_value"].toOptional<double>()) {}

  variable_list tensors;  // those given to save(), then the masks'
  double scale;
  MaskArguments masks;
};

bool needs_mask_gradient(AutogradContext* context, const MaskArguments& masks) {
  return masks.attn_mask.has_value() && masks.attn_mask->is_floating_point() &&
         context->needs_input_grad(1);
}

// --- scaled_masked_softmax --------------------------------------------------------------------

// ds = scale * v * y * (g - sum(g * y)), v = 0 for hidden keys. A key with masked_value counts as
// hidden for the gradient, though its y is not zero.
struct MaskedBackward
    : AutogradNode<MaskedBackward,
                   at::Tensor(const at::Tensor&, const at::Tensor&, double, const MaskArguments&)> {
  static constexpr const char* kName = "_scaled_masked_softmax_backward";

  static void save(AutogradContext* context, const variable_list&, const at::Tensor& grad_output,
                   const at::Tensor& output, double scale, const MaskArguments& masks) {
    warpfuse::save(context, {grad_output, output}, scale, masks);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Saved saved(context);
    const at::Tensor& g = saved.tensors[0];
    const at::Tensor& y = saved.tensors[1];
    const at::Tensor gg = without_filled(grads[0] * saved.scale, saved.masks);
    const at::Tensor sum = (gg * y).sum(-1, true);
    variable_list result(5);
    result[0] = y * (gg - sum);
    result[1] = gg * (g - (g * y).sum(-1, true)) - g * sum;
    return result;
  }

  static variable_list jvp(const variable_list&, const variable_list& tangents, const at::Tensor& g,
                           const at::Tensor& y, double scale, const MaskArguments& masks) {
    at::Tensor result =
        tangents[0].defined() ? call(tangents[0], y, scale, masks) : at::zeros_like(g);
    if (tangents[1].defined()) {
      const at::Tensor& t = tangents[1];
      const at::Tensor part = t * (g - (g * y).sum(-1, true)) - y * (g * t).sum(-1, true);
      result = result + without_filled(scale * part, masks);
    }
    return {result};
  }

  /// Zeros for the keys that have masked_value.
  static at::Tensor without_filled(const at::Tensor& tensor, const MaskArguments& masks) {
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): a filled mask is a tensor
    return masks.masked_value.has_value() ? tensor.masked_fill(masks.attn_mask->logical_not(), 0)
                                          : tensor;
  }
};

// The tangent of y for those of the scores and of an additive mask, each of which may be undefined.
// With t the tangent of the masked scores it is y * (t - sum(t * y)), which the backward makes of
// t. Keys with masked_value are the exception: their scores are constant and their y is not zero.
at::Tensor softmax_tangent(const at::Tensor& y, const at::Tensor& scores_tangent,
                           const at::Tensor& mask_tangent, double scale,
                           const MaskArguments& masks) {
  MaskArguments hiding = masks;
  if (masks.masked_value.has_value()) {
    hiding.attn_mask.reset();
    hiding.masked_value.reset();
  }
  at::Tensor result;
  if (scores_tangent.defined()) {
    result = MaskedBackward::call(MaskedBackward::without_filled(scores_tangent, masks), y, scale,
                                  hiding);
  }
  if (mask_tangent.defined()) {  // in its own dtype where that is the wider one
    const at::ScalarType type = at::promote_types(mask_tangent.scalar_type(), y.scalar_type());
    const at::Tensor t = mask_tangent.to(type).expand_symint(y.sym_sizes());
    const at::Tensor part = MaskedBackward::call(t, y.to(type), 1.0, hiding).to(y.scalar_type());
    result = result.defined() ? result + part : part;
  }
  return result;
}

struct MaskedForward
    : AutogradNode<MaskedForward, at::Tensor(const at::Tensor&, double, const MaskArguments&)> {
  static constexpr const char* kName = "scaled_masked_softmax";

  static void save(AutogradContext* context, const variable_list& outputs, const at::Tensor&,
                   double scale, const MaskArguments& masks) {
    warpfuse::save(context, outputs, scale, masks);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Saved saved(context);
    const at::Tensor& output = saved.tensors[0];
    const at::Tensor& g = grads[0];
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      result[0] = MaskedBackward::call(g, output, saved.scale, saved.masks);
    }
    if (needs_mask_gradient(context, saved.masks)) {
      // The gradient before the scale, summed over the broadcast dimensions, in the mask's own
      // dtype where that is the wider one.
      // NOLINTNEXTLINE(bugprone-unchecked-optional-access): it has one
      const at::Tensor& mask = *saved.masks.attn_mask;
      const at::ScalarType type = at::promote_types(mask.scalar_type(), output.scalar_type());
      result[1] = MaskedBackward::call(g.to(type), output.to(type), 1.0, saved.masks)
                      .sum_to_size_symint(mask.sym_sizes())
                      .to(mask.scalar_type());
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor&, double scale, const MaskArguments& masks) {
    return {softmax_tangent(outputs[0], tangents[0], tangents[1], scale, masks)};
  }
};

// --- with dropout -----------------------------------------------------------------------------

struct MaskedDropoutBackward
    : OnceDifferentiable<MaskedDropoutBackward,
                         at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, double, const MaskArguments&, double)> {
  static constexpr const char* kName = "_scaled_masked_softmax_dropout_backward";
};

// With s the masked softmax and k = keep / (1 - p): ds = scale * v * s * (g * k - sum(s * g * k)),
// v = 0 for hidden keys. s is recomputed from the scores and the statistics of their rows.
struct MaskedDropoutForward
    : AutogradNode<MaskedDropoutForward, std::tuple<at::Tensor, at::Tensor, at::Tensor>(
                                             const at::Tensor&, double, const MaskArguments&,
                                             double, const OptionalTensor&)> {
  static constexpr const char* kName = "_scaled_masked_softmax_dropout";

  static void save(AutogradContext* context, const variable_list& outputs, const at::Tensor& scores,
                   double scale, const MaskArguments& masks, double dropout_p,
                   const OptionalTensor&) {
    warpfuse::save(context, {scores, outputs[1], outputs[2]}, scale, masks);
    context->saved_data["dropout_p"] = dropout_p;
    context->mark_non_differentiable({outputs[1], outputs[2]});
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    Saved saved(context);
    const at::Tensor& scores = saved.tensors[0];
    const at::Tensor& statistics = saved.tensors[1];
    const at::Tensor& rng = saved.tensors[2];
    const double dropout_p = context->saved_data["dropout_p"].toDouble();
    variable_list result(5);
    if (context->needs_input_grad(0)) {
      result[0] = MaskedDropoutBackward::call(grads[0], scores, statistics, rng, saved.scale,
                                              saved.masks, dropout_p);
    }
    if (needs_mask_gradient(context, saved.masks)) {
      // As above, in the dtype that rows are computed in.
      // NOLINTNEXTLINE(bugprone-unchecked-optional-access): it has one
      const at::Tensor mask = *saved.masks.attn_mask;
      const at::ScalarType type = statistics_dtype(scores);
      saved.masks.attn_mask = mask.to(type);
      result[1] = MaskedDropoutBackward::call(grads[0].to(type), scores.to(type) * saved.scale,
                                              statistics, rng, 1.0, saved.masks, dropout_p)
                      .sum_to_size_symint(mask.sym_sizes())
                      .to(mask.scalar_type());
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& scores, double scale, const MaskArguments& masks,
                           double dropout_p, const OptionalTensor&) {
    const at::Tensor t = softmax_tangent(MaskedForward::call(scores, scale, masks), tangents[0],
                                         tangents[1], scale, masks);
    return {dropped(t, dropout_p, outputs[2]), at::Tensor(), at::Tensor()};
  }
};

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  MaskedForward::register_in(m);
  MaskedBackward::register_in(m);
  MaskedDropoutForward::register_in(m);
  MaskedDropoutBackward::register_in(m);
}

}  // namespace
}  // namespace warpfuse
