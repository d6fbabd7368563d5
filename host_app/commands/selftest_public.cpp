#include "commands/selftest_public.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/fused_logprob.h>
#include <warpfuse/ms_deform_attn.h>
#include <warpfuse/sample_tokens.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/scaled_masked_softmax_dropout.h>
#include <warpfuse/softmax.h>

#include <limits>

namespace warpfuse::host {
namespace {

at::Tensor targets_of(const at::Tensor& x) {
  return at::arange(x.numel() / x.size(-1), x.options().dtype(at::kLong))
      .remainder(x.size(-1))
      .view(x.sizes().slice(0, x.dim() - 1));
}

at::Tensor causal(const at::Tensor& x) {
  const at::Tensor hidden =
      at::ones({x.size(-2), x.size(-1)}, x.options().dtype(at::kBool)).triu(1);
  return at::softmax((x * 0.5).masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
}

at::Tensor weight_of(const at::Tensor& x) {
  return at::linspace(-1, 1, 7 * x.size(-1), x.options()).view({7, x.size(-1)});
}

at::Tensor softmax(const at::Tensor& x) { return at::softmax(x, -1); }

// Deformable attention of 4 queries and 5 heads over levels of 2 x 3 and 3 x 2 pixels, 3 points
// each; x becomes the weights.
at::Tensor deformed(const at::Tensor& x, decltype(&ms_deform_attn) attention) {
  const at::TensorOptions places = x.options().dtype(at::kLong);
  return attention(at::linspace(-1, 1, 720, x.options()).view({3, 12, 5, 4}),
                   at::tensor({2, 3, 3, 2}, places).view({2, 2}), at::tensor({0, 6}, places),
                   at::linspace(0.1, 0.9, 2 * x.numel(), x.options()).view({3, 4, 5, 2, 3, 2}),
                   x.view({3, 4, 5, 2, 3}), /*check_shapes=*/false);
}

constexpr Gradient kGradients[] = {
    {"softmax", [](const at::Tensor& x) { return warpfuse::softmax(x, -1); }, softmax},
    {"log_softmax", [](const at::Tensor& x) { return warpfuse::log_softmax(x, 1); },
     [](const at::Tensor& x) { return at::log_softmax(x, 1); }},
    {"scaled_masked_softmax",
     [](const at::Tensor& x) {
       return warpfuse::scaled_masked_softmax(x, 0.5, std::nullopt, "upper_left");
     },
     causal},
    {"scaled_masked_softmax_dropout",
     [](const at::Tensor& x) {
       return warpfuse::scaled_masked_softmax_dropout(x, 0.5, std::nullopt, "upper_left",
                                                      std::nullopt, std::nullopt, 0, std::nullopt,
                                                      0.3, /*training=*/false);
     },
     causal},
    {"dropout_softmax",
     [](const at::Tensor& x) { return warpfuse::dropout_softmax(x, -1, 0.3, false); }, softmax},
    {"softmax_dropout",
     [](const at::Tensor& x) { return warpfuse::softmax_dropout(x, -1, 0.3, false); }, softmax},
    {"linear_dropout_softmax",
     [](const at::Tensor& x) {
       return warpfuse::linear_dropout_softmax(x, weight_of(x), std::nullopt, 0.3, false);
     },
     [](const at::Tensor& x) { return at::softmax(at::linear(x, weight_of(x)), -1); }},
    {"ms_deform_attn_softmax",
     [](const at::Tensor& x) { return deformed(x, ms_deform_attn_softmax); },
     [](const at::Tensor& x) { return deformed(at::softmax(x, -1), ms_deform_attn); }},
    {"fused_logprob", [](const at::Tensor& x) { return fused_logprob(x, targets_of(x)); },
     [](const at::Tensor& x) {
       return at::log_softmax(x, -1).gather(-1, targets_of(x).unsqueeze(-1)).squeeze(-1);
     }},
};

}  // namespace

std::span<const Gradient> gradients() { return kGradients; }

double gradient_error(const Gradient& gradient, c10::Device device) {
  const auto of = [&](const auto& function, const at::Tensor& x) {
    const at::Tensor y = function(x);
    const at::Tensor weights = at::linspace(-1, 1, y.numel(), y.options()).view_as(y);
    return torch::autograd::grad({(y * weights).sum()}, {x})[0];
  };
  const at::Tensor x =
      at::randn({3, 4, 5, 6}, at::dtype(at::kDouble).device(device)).requires_grad_();
  return (of(gradient.plugin, x) - of(gradient.aten, x)).abs().max().item<double>();
}

int64_t wrong_tokens(c10::ScalarType dtype, c10::Device device) {
  const at::Tensor logits = at::randn({65, 1025}, device).to(dtype);
  const at::Tensor step = at::zeros({1}, at::dtype(at::kLong).device(device));
  const at::Tensor greedy = sample_tokens(logits, step, 0, 0.0);
  const at::Tensor drawn = sample_tokens(logits, step, 1, 1.0, 5).unsqueeze(-1);
  const at::Tensor fifth = std::get<0>(logits.topk(5)).select(-1, 4).unsqueeze(-1);
  const at::Tensor wrong =
      at::cat({greedy.ne(logits.argmax(-1)), logits.gather(-1, drawn).lt(fifth).squeeze(-1)});
  return wrong.sum().item<int64_t>();
}

}  // namespace warpfuse::host
