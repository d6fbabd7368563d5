#include <ATen/ATen.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/fused_logprob.h>
#include <warpfuse/info.h>
#include <warpfuse/scaled_masked_softmax.h>
#include <warpfuse/scaled_masked_softmax_dropout.h>
#include <warpfuse/softmax.h>

#include <iostream>

#include "examples.inc"

int main() {
  run_examples();
  const at::Tensor output = warpfuse::softmax(at::zeros({2, 4}), 1);
  const at::Tensor causal =
      warpfuse::scaled_masked_softmax(at::zeros({2, 2}), 0.5, {}, "upper_left");
  std::cout << warpfuse::build_info() << "\n" << output << "\n" << causal << "\n";
  at::Tensor logits = at::randn({2, 5, 50257}).set_requires_grad(true);
  at::Tensor targets = at::randint(50257, {2, 4}, at::kLong);
  at::Tensor logprob = warpfuse::fused_logprob(logits.slice(1, 0, 4), targets);  // float32 [2, 4]
  logprob.mean().neg().backward();
  const bool has_gradient = logits.grad().narrow(1, 0, 4).ne(0).any(-1).all().item<bool>();
  at::Tensor scores = at::randn({2, 4, 16, 16}).set_requires_grad(true);
  at::Tensor attention = warpfuse::scaled_masked_softmax_dropout(scores, 0.125, {}, "upper_left",
                                                                 {}, {}, 0, {}, 0.1, true);
  attention.pow(2).sum().backward();
  at::Tensor answers =
      warpfuse::linear_dropout_softmax(at::randn({8, 64}), at::randn({10, 64}), {}, 0.2);
  const bool drops = attention.tril().eq(0).sum().item<int64_t>() > 2 * 4 * 120 &&
                     scores.grad().ne(0).any().item<bool>() &&
                     answers.sum(1).sub(1).abs().lt(1e-5).all().item<bool>();
  const bool fits = drops && logprob.lt(0).all().item<bool>() && has_gradient;
  return fits && output.eq(0.25).all().item<bool>() && causal[0][1].item<float>() == 0.0F ? 0 : 1;
}
