// Gradients of the operators with dropout: autograd through ATen with the mask that was drawn, and
// second derivatives, which there are none of. (Central differences:
// tests/python/test_operators.py.)

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

WARPFUSE_DEVICE_TEST("the backward of a call that drew its own mask", "[dropout][gradient]") {
  // Against autograd through ATen's operators with the mask that was drawn.
  const at::Tensor grad = random_tensor({64, 300}, at::kDouble, device);
  for (const bool softmax_first : {false, true}) {
    const DropoutCall call{.dim = 1, .p = 0.4, .softmax_first = softmax_first};
    const at::Tensor x = random_tensor({64, 300}, at::kDouble, device).set_requires_grad(true);
    const auto [output, statistics, rng] = dropout_softmax(x, call);
    CHECK(output.requires_grad());
    CHECK(!statistics.requires_grad());
    CHECK(!rng.requires_grad());
    const at::Tensor factors = dropout_mask(x, call.p, rng).to(at::kDouble) / (1 - call.p);
    const at::Tensor aten =
        softmax_first ? at::softmax(x, 1) * factors : at::softmax(x * factors, 1);
    CHECK(far_apart(output, aten, 1e-13) == "");
    CHECK(far_apart(torch::autograd::grad({output}, {x}, {grad})[0],
                    torch::autograd::grad({aten}, {x}, {grad})[0], 1e-12) == "");
  }
}

WARPFUSE_DEVICE_TEST("a backward pass draws nothing, and may be run twice", "[dropout][gradient]") {
  const at::Tensor x = random_tensor({8, 100}, at::kFloat, device).set_requires_grad(true);
  const at::Tensor grad = random_tensor({8, 100}, at::kFloat, device);
  for (const bool softmax_first : {false, true}) {
    at::manual_seed(3);
    const at::Tensor output =
        softmax_first ? warpfuse::softmax_dropout(x, 1) : warpfuse::dropout_softmax(x, 1);
    const at::Tensor undisturbed = at::rand({4}, at::TensorOptions(device));
    at::manual_seed(3);
    const at::Tensor again =
        softmax_first ? warpfuse::softmax_dropout(x, 1) : warpfuse::dropout_softmax(x, 1);
    CHECK(again.equal(output));
    const at::Tensor first = torch::autograd::grad({again}, {x}, {grad}, /*retain_graph=*/true)[0];
    CHECK(torch::autograd::grad({again}, {x}, {grad})[0].equal(first));
    CHECK(at::rand({4}, at::TensorOptions(device)).equal(undisturbed));
  }
}

WARPFUSE_DEVICE_TEST("a second derivative is an error that says so", "[dropout][gradient]") {
  const at::Tensor x = random_tensor({3, 7}, at::kDouble, device).set_requires_grad(true);
  for (const at::Tensor& output :
       {warpfuse::dropout_softmax(x, 1), warpfuse::softmax_dropout(x, 1),
        warpfuse::scaled_masked_softmax_dropout(x, 1.0, {}, "none", {}, {}, 0, {}, 0.5, true)}) {
    const at::Tensor grad =
        torch::autograd::grad({(output * output).sum()}, {x}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true)[0];
    const std::string error = error_of([&] { torch::autograd::grad({grad.sum()}, {x}); });
    INFO(error);
    CHECK(error.find("_backward: grad_output: expected one differentiation (there is no double "
                     "backward), got a second") != std::string::npos);
  }
}
