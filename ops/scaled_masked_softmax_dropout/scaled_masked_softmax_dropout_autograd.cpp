#include <ATen/TensorOperators.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/scaled_masked_softmax.h>

#include <string>

#include "common/autograd_function.h"
#include "common/dropout_tangent.h"
#include "common/registration.h"
#include "rowwise/masked_tangent.h"
#include "rowwise/saved_masks.h"
#include "scaled_masked_softmax_dropout/scaled_masked_softmax_dropout.h"

namespace warpfuse {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

MaskedSoftmaxDropoutResult call_forward(const at::Tensor& scores, double scale,
                                        const OptionalTensor& attn_mask, c10::string_view causal,
                                        const OptionalTensor& query_positions,
                                        const OptionalTensor& key_lengths, int64_t window,
                                        std::optional<double> masked_value, double dropout_p,
                                        const OptionalTensor& rng) {
  static const auto op = detail::find_operator<MaskedSoftmaxDropoutResult(
      const at::Tensor&, double, const OptionalTensor&, c10::string_view, const OptionalTensor&,
      const OptionalTensor&, int64_t, std::optional<double>, double, const OptionalTensor&)>(
      "warpfuse::_scaled_masked_softmax_dropout");
  return op.call(scores, scale, attn_mask, causal, query_positions, key_lengths, window,
                 masked_value, dropout_p, rng);
}

// The scores, row statistics and random state of a call.
struct Saved {
  at::Tensor scores, statistics, rng;
  double dropout_p;
};

constexpr int kSavedTensors = 3;

at::Tensor call_backward(const at::Tensor& grad_output, const Saved& saved, double scale,
                         const MaskArguments& masks) {
  static const auto op = detail::find_operator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
      const OptionalTensor&, c10::string_view, const OptionalTensor&, const OptionalTensor&,
      int64_t, std::optional<double>, double)>("warpfuse::_scaled_masked_softmax_dropout_backward");
  return op.call(grad_output, saved.scores, saved.statistics, saved.rng, scale, masks.attn_mask,
                 masks.causal, masks.query_positions, masks.key_lengths, masks.window,
                 masks.masked_value, saved.dropout_p);
}

// The gradient of an additive mask: that of the scores before the scale, summed over what was
// broadcast, in the type that rows are computed in.
at::Tensor mask_gradient(const at::Tensor& grad_output, const Saved& saved,
                         const SavedMasks<kSavedTensors>& masks, const at::Tensor& mask) {
  const at::ScalarType type = statistics_dtype(saved.scores);
  const Saved scaled{saved.scores.to(type) * masks.scale, saved.statistics, saved.rng,
                     saved.dropout_p};
  const OptionalTensor wide_mask = mask.to(type);
  return call_backward(grad_output.to(type), scaled, 1.0, masks.with(wide_mask))
      .sum_to_size_symint(mask.sym_sizes())
      .to(mask.scalar_type());
}

// With s the masked softmax and k = keep / (1 - p): ds = scale * v * s * (g * k - sum(s * g * k)),
// v = 0 for hidden keys. s is had again from the scores and what was noted of their rows.
class Forward : public AutogradFunction<Forward> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& scores, double scale,
                               const OptionalTensor& attn_mask, const std::string& causal,
                               const OptionalTensor& query_positions,
                               const OptionalTensor& key_lengths, int64_t window,
                               std::optional<double> masked_value, double dropout_p,
                               const OptionalTensor& rng) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto [output, statistics, rng_used] =
        call_forward(scores, scale, attn_mask, causal, query_positions, key_lengths, window,
                     masked_value, dropout_p, rng);
    SavedMasks<kSavedTensors>::save(
        context, {scores, statistics, rng_used}, scale,
        {attn_mask, causal, query_positions, key_lengths, window, masked_value});
    context->saved_data["dropout_p"] = dropout_p;
    context->mark_non_differentiable({statistics, rng_used});
    return {output, statistics, rng_used};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list tensors = context->get_saved_variables();
    const SavedMasks<kSavedTensors> masks(context, tensors);
    const Saved saved{tensors[0], tensors[1], tensors[2],
                      context->saved_data["dropout_p"].toDouble()};
    variable_list result(10);
    if (context->needs_input_grad(0)) {
      result[0] = call_backward(grads[0], saved, masks.scale, masks.with(masks.attn_mask));
    }
    if (masks.attn_mask.has_value() && masks.attn_mask->is_floating_point() &&
        context->needs_input_grad(1)) {
      result[2] = mask_gradient(grads[0], saved, masks, *masks.attn_mask);
    }
    return result;
  }

  static variable_list jvp(const variable_list& outputs, const variable_list& tangents,
                           const at::Tensor& scores, double scale, const OptionalTensor& attn_mask,
                           const std::string& causal, const OptionalTensor& query_positions,
                           const OptionalTensor& key_lengths, int64_t window,
                           std::optional<double> masked_value, double dropout_p,
                           const OptionalTensor&) {
    const at::Tensor softmax = scaled_masked_softmax(
        scores, scale, attn_mask, causal, query_positions, key_lengths, window, masked_value);
    const at::Tensor t = masked_softmax_tangent(
        softmax, tangents[0], tangents[2], scale,
        {attn_mask, causal, query_positions, key_lengths, window, masked_value});
    return {dropped(t, dropout_p, outputs[2]), at::Tensor(), at::Tensor()};
  }
};

// A node of its own, so that a second differentiation says what is missing.
class Backward : public AutogradFunction<Backward> {
 public:
  static at::Tensor forward(AutogradContext*, const at::Tensor& grad_output,
                            const at::Tensor& scores, const at::Tensor& statistics,
                            const at::Tensor& rng, double scale, const OptionalTensor& attn_mask,
                            const std::string& causal, const OptionalTensor& query_positions,
                            const OptionalTensor& key_lengths, int64_t window,
                            std::optional<double> masked_value, double dropout_p) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_backward(grad_output, {scores, statistics, rng, dropout_p}, scale,
                         {attn_mask, causal, query_positions, key_lengths, window, masked_value});
  }

  static variable_list backward(AutogradContext*, const variable_list&) { return refused(); }

  template <typename... Arguments>
  static variable_list jvp(const variable_list&, const variable_list&, const Arguments&...) {
    return refused();
  }

 private:
  static variable_list refused() {
    WARPFUSE_CHECK(false, "_scaled_masked_softmax_dropout_backward", "grad_output",
                   "one differentiation (there is no double backward)", "a second");
  }
};

at::Tensor backward_autograd(const at::Tensor& grad_output, const at::Tensor& scores,
                             const at::Tensor& statistics, const at::Tensor& rng, double scale,
                             const OptionalTensor& attn_mask, c10::string_view causal,
                             const OptionalTensor& query_positions,
                             const OptionalTensor& key_lengths, int64_t window,
                             std::optional<double> masked_value, double dropout_p) {
  return Backward::apply(grad_output, scores, statistics, rng, scale, attn_mask,
                         std::string(causal), query_positions, key_lengths, window, masked_value,
                         dropout_p);
}

MaskedSoftmaxDropoutResult forward_autograd(const at::Tensor& scores, double scale,
                                            const OptionalTensor& attn_mask,
                                            c10::string_view causal,
                                            const OptionalTensor& query_positions,
                                            const OptionalTensor& key_lengths, int64_t window,
                                            std::optional<double> masked_value, double dropout_p,
                                            const OptionalTensor& rng) {
  const variable_list results =
      Forward::apply(scores, scale, attn_mask, std::string(causal), query_positions, key_lengths,
                     window, masked_value, dropout_p, rng);
  return {results[0], results[1], results[2]};
}

WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl("_scaled_masked_softmax_dropout", forward_autograd);
  m.impl("_scaled_masked_softmax_dropout_backward", backward_autograd);
}

// --- the public operator, on every backend ----------------------------------------------------
// It is made of others, each with its gradient. Autocast keeps the scores' dtype.

at::Tensor masked_softmax_and_dropout(const at::Tensor& scores, double scale,
                                      const OptionalTensor& attn_mask, c10::string_view causal,
                                      const OptionalTensor& query_positions,
                                      const OptionalTensor& key_lengths, int64_t window,
                                      std::optional<double> masked_value, double dropout_p,
                                      bool training) {
  check_masked_dropout("scaled_masked_softmax_dropout", scores,
                       {attn_mask, causal, query_positions, key_lengths, window, masked_value},
                       dropout_p, std::nullopt);
  return training && dropout_p > 0
             ? std::get<0>(call_forward(scores, scale, attn_mask, causal, query_positions,
                                        key_lengths, window, masked_value, dropout_p, std::nullopt))
             : scaled_masked_softmax(scores, scale, attn_mask, causal, query_positions, key_lengths,
                                     window, masked_value);
}

WARPFUSE_LIBRARY_IMPL(CompositeImplicitAutograd, m) {
  m.impl("scaled_masked_softmax_dropout", masked_softmax_and_dropout);
}

// Under vmap too: what it is made of knows what its randomness means.
WARPFUSE_LIBRARY_IMPL(FuncTorchVmapMode, m) {
  m.impl("scaled_masked_softmax_dropout", masked_softmax_and_dropout);
}

}  // namespace
}  // namespace warpfuse
