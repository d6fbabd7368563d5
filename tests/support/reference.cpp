#include "reference.h"

#include <limits>

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// [B, H, Tq, Tk], whatever dimensions the scores leave out.
at::Tensor with_four_dims(const at::Tensor& tensor) {
  return tensor.dim() == 4   ? tensor
         : tensor.dim() == 3 ? tensor.unsqueeze(1)
                             : tensor.unsqueeze(0).unsqueeze(0);
}

/// The keys that the rules leave visible, of a shape that broadcasts to [B, H, Tq, Tk].
at::Tensor seen_by_rules(const at::Tensor& scores, const MaskArguments& a) {
  const int64_t queries = scores.size(-2), keys = scores.size(-1);
  const auto options = at::TensorOptions(scores.device()).dtype(at::kLong);
  const at::Tensor key = at::arange(keys, options);
  at::Tensor own = at::arange(queries, options).view({queries, 1});
  at::Tensor seen = at::ones({1, 1, queries, keys}, options.dtype(at::kBool));
  if (a.causal == "lower_right") {
    own = own + (keys - queries);
  }
  if (a.causal != "none") {
    seen = seen.logical_and(key <= own);
  }
  if (a.query_positions) {
    own = a.query_positions->to(at::kLong).clamp(-1, keys - 1).reshape({-1, 1, queries, 1});
    seen = seen.logical_and(key <= own);
  }
  if (a.key_lengths) {
    seen = seen.logical_and(key < a.key_lengths->to(at::kLong).view({-1, 1, 1, 1}));
  }
  if (a.window > 0) {
    seen = seen.logical_and(key <= own).logical_and(own - key < a.window);
  }
  return seen;
}

/// The mask tensor as [B, H, Tq, Tk].
at::Tensor full_mask(const at::Tensor& scores, const MaskArguments& a) {
  return with_four_dims(a.attn_mask->detach().expand(scores.sizes()));
}

bool hides(const MaskArguments& a) {
  return a.attn_mask && a.attn_mask->scalar_type() == at::kBool && !a.masked_value;
}
bool fills(const MaskArguments& a) {
  return a.attn_mask && a.attn_mask->scalar_type() == at::kBool && a.masked_value;
}

}  // namespace

Expected expected_softmax(const at::Tensor& self, int64_t dim, bool log) {
  const at::Tensor x = as_double(self);
  if (x.numel() == 0) {  // which has no largest value
    return {x, x};
  }
  const at::Tensor shifted = x - x.amax(dim, true);
  const at::Tensor sum = shifted.exp().sum(dim, true);
  if (log) {
    const at::Tensor values = shifted - sum.log();
    return {values, values.abs() - shifted + kBase};
  }
  const at::Tensor values = shifted.exp() / sum;
  return {values, values * (kBase - shifted)};
}

Expected expected_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                   int64_t dim, bool log) {
  const at::Tensor g = as_double(grad_output), y = as_double(output);
  if (log) {
    const at::Tensor probability = y.exp();
    return {g - probability * g.sum(dim, true),
            g.abs() * kBase + (y.abs() + kBase) * probability * g.abs().sum(dim, true)};
  }
  const at::Tensor products = g * y;
  return {y * (g - products.sum(dim, true)),
          y.abs() * (g.abs() + products.abs().sum(dim, true)) * kBase};
}

Expected expected_masked_softmax(const at::Tensor& scores, const MaskArguments& a) {
  if (scores.numel() == 0) {
    return {as_double(scores), as_double(scores)};
  }
  at::Tensor logits = with_four_dims(as_double(scores)) * a.scale;
  at::Tensor rounding = a.scale == 1.0 ? at::zeros_like(logits) : logits.abs() * 2;
  at::Tensor seen = seen_by_rules(scores, a);
  at::Tensor open = seen;
  if (hides(a)) {
    seen = seen.logical_and(full_mask(scores, a));
    open = seen;
  } else if (fills(a)) {
    const at::Tensor filled = full_mask(scores, a).logical_not();
    logits = logits.masked_fill(filled, *a.masked_value);
    rounding = rounding.masked_fill(filled, std::abs(*a.masked_value));
  } else if (a.attn_mask) {
    const at::Tensor mask = full_mask(scores, a).to(at::kDouble);
    logits = logits + mask;
    rounding = rounding + logits.abs();
    open = seen.logical_and(mask != kHidden);
  }
  logits = at::where(seen, logits, kHidden);
  const at::Tensor any_open = open.any(-1, /*keepdim=*/true);
  const at::Tensor shifted = logits - logits.amax(-1, true);
  const at::Tensor exponentials = shifted.exp();
  const at::Tensor values =
      at::where(seen.logical_and(any_open), exponentials / exponentials.sum(-1, true), 0.0);
  const at::Tensor some = values > 0;
  const at::Tensor of_sum = at::where(some, values * rounding, 0.0).sum(-1, true);
  const at::Tensor error = at::where(some, values * (rounding - shifted + of_sum + kBase), 0.0);
  return {values.reshape(scores.sizes()), error.reshape(scores.sizes())};
}

Expected expected_masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                          const MaskArguments& a) {
  Expected all = expected_softmax_backward(grad_output, output, -1);
  if (output.numel() == 0) {
    return all;
  }
  at::Tensor counts = seen_by_rules(output, a);
  if (hides(a) || fills(a)) {
    counts = counts.logical_and(full_mask(output, a));
  }
  const auto of_counted = [&](const at::Tensor& values, double scale) {
    return at::where(counts, with_four_dims(values) * scale, 0.0).reshape(output.sizes());
  };
  return {of_counted(all.values, a.scale), of_counted(all.error, std::abs(a.scale))};
}

at::Tensor visible_keys(const at::Tensor& scores, const MaskArguments& a) {
  if (scores.numel() == 0) {
    return at::zeros_like(scores, at::kBool);
  }
  const at::Tensor all = at::ones_like(scores, at::kBool);
  const at::Tensor seen = with_four_dims(all).logical_and(seen_by_rules(scores, a));
  return (hides(a) ? seen.logical_and(full_mask(scores, a)) : seen).reshape(scores.sizes());
}
