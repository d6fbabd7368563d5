// linear_dropout_softmax of float32 by the tensor cores of float16, on GPUs that have the kernel.

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <cmath>
#include <string>

#include "support/catch.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/linear.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

/// As layer(), with values of all bits of float32.
Layer full_layer(at::IntArrayRef sizes, int64_t columns, const at::Device& device,
                 double spread = 1) {
  const auto inner = static_cast<double>(sizes.back());
  return {random_tensor(sizes, at::kFloat, device, 1.0),
          random_tensor({columns, sizes.back()}, at::kFloat, device, spread / std::sqrt(inner)),
          random_tensor({columns}, at::kFloat, device, 1.0)};
}

at::Tensor split_softmax(const Layer& l) {
  return warpfuse::linear_dropout_softmax(l.input, l.weight, l.bias, 0.5, /*training=*/false,
                                          /*allow_split_float32=*/true);
}

}  // namespace

WARPFUSE_GPU_TEST("shapes of split float32", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 exact(false);
  const CounterDelta splits("tier.elements");
  const auto check = [&](const Layer& l, double p) { check_layer(l, p, 1, /*split=*/true); };
  // Less than a group of 64, whole groups, as many stages as a ring has, many rounds, a tail.
  for (const int64_t inner : {4, 60, 64, 68, 192, 448, 4100}) {
    check(full_layer({128, inner}, 16'384, device), kP);
  }
  for (const int64_t rows : {64, 65, 127}) {
    check(full_layer({rows, 200}, 88 * kColumns, device), kP);
  }
  // Pieces as large as the partials of all blocks: both are held until the kernels have run.
  check(full_layer({64, 512}, 128 * kColumns, device), kP);
  for (const int64_t columns : {99 * kColumns + 8, 101 * kColumns, 68 * kColumns + 72}) {
    check(full_layer({100, 200}, columns, device), kP);
  }
  for (const double p : {std::ldexp(1.0, -24), 0.999, 1.0}) {
    check(full_layer({70, 200}, 100 * kColumns, device), p);
  }
  Layer l = full_layer({2, 6, 8, 200}, 100 * kColumns, device);
  l.bias.reset();
  check(l, kP);
  l.input = random_tensor({200, 96}, at::kFloat, device).t();  // a copy is made
  check(l, kP);
  // dropout_mask() is of the same tier, once in each check.
  CHECK(splits() == int64_t{2} * 19);
}

WARPFUSE_GPU_TEST("split float32 is as near to exact logits as at::linear",
                  "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 exact(false);
  const auto check = [](const std::string& values, const Layer& l) {
    INFO(values << " " << describe(l.input));
    const at::Tensor logits = at::log_softmax(logits_of(l), -1);
    const at::Tensor normal = logits.gt(-80);  // probabilities that float32 holds in full
    const auto errors = [&](const at::Tensor& log_probabilities) {
      const at::Tensor error = (log_probabilities - logits).masked_select(normal);
      return std::pair(error.abs().max().item<double>(),
                       error.square().mean().sqrt().item<double>());
    };
    const auto [largest, l2] = errors(split_softmax(l).to(at::kDouble).log());
    // That of float32 probabilities, whose logarithms these are.
    const double rounding = 3e-7;
    const auto [linear_largest, linear_l2] =
        errors(at::log_softmax(at::linear(l.input, l.weight, l.bias).to(at::kDouble), -1));
    CHECK(largest <= 2 * linear_largest + rounding);
    CHECK(l2 <= 2 * linear_l2 + rounding);
  };
  for (const int64_t inner : {72, 512, 4096}) {
    for (const int64_t rows : {64, 128}) {
      check("normal", full_layer({rows, inner}, 16'384, device, 5));
    }
  }
  const Layer l = full_layer({128, 4096}, 16'384, device, 5);
  const auto with_weight = [&](const at::Tensor& weight) { return Layer{l.input, weight, l.bias}; };
  const auto magnitudes = [&](int64_t count) {
    return at::logspace(-3, 0, count, 10, at::TensorOptions(device));
  };
  check("rows of the weight from 0.001 to 1",
        with_weight(l.weight * magnitudes(16'384).unsqueeze(1)));
  check("columns of the weight from 0.001 to 1", with_weight(l.weight * magnitudes(4096)));
  const at::Tensor mixed = at::exp(at::randn_like(l.weight) * 3);
  check("elements of the weight of mixed size",
        with_weight(l.weight * mixed / mixed.square().mean().sqrt()));
  check("outliers of the input", {l.input / magnitudes(4096), l.weight * magnitudes(4096), l.bias});
  check("nothing but positive values", {l.input.abs() / 10, l.weight.abs() / 10, l.bias});
  check("a tiny input", {l.input * 1e-30, l.weight * 1e30, l.bias});
}

WARPFUSE_GPU_TEST("float32 is split on request alone", "[dropout][linear][portable]") {
  const Layer l = full_layer({128, 64}, 88 * kColumns, device);
  const CounterDelta tiles("tier.tile"), splits("tier.elements");
  {
    const Tf32 exact(false);
    warpfuse::linear_dropout_softmax(l.input, l.weight, l.bias, 0.5, false);
    CHECK(tiles() == 0);
    for (const int64_t rows : {1, 63, 129}) {
      split_softmax(full_layer({rows, 64}, 88 * kColumns, device));
    }
    CHECK(tiles() == 0);
    split_softmax(l);
    CHECK(tiles() == (has_kernel() ? 1 : 0));
    CHECK(splits() == tiles());
  }
  const Tf32 rounded(true);  // which is faster
  split_softmax(l);
  CHECK(tiles() == (has_kernel() ? 2 : 0));
  CHECK(splits() == (has_kernel() ? 1 : 0));
}

WARPFUSE_GPU_TEST("NaN and infinities in split float32", "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 exact(false);
  Layer l = full_layer({80, 200}, 80 * kColumns, device);
  l.input[1][3] = kNaN;
  l.input[2][199] = -kInf;
  l.bias->slice(0, 256, 640).fill_(-kInf);
  const at::Tensor output = split_softmax(l);
  const at::Tensor expected = at::softmax(logits_of(l), -1);
  for (const int64_t row : {0, 3, 7}) {
    CHECK(is_near(output[row], expected[row], 200));
  }
  CHECK(output.slice(0, 1, 3).isnan().all().item<bool>());
  l.weight[5][100] = kInf;
  CHECK(split_softmax(l).isnan().all().item<bool>());
  l.weight.fill_(0);
  l.input.fill_(0);
  CHECK(is_near(split_softmax(l), at::softmax(logits_of(l), -1), 200));
}

WARPFUSE_GPU_TEST("split float32 in graphs, on streams, and its memory",
                  "[dropout][linear][portable]") {
  if (skip_without_kernel()) {
    return;
  }
  const Tf32 exact(false);
  const Layer l = full_layer({128, 512}, 16'384, device);
  const at::Tensor expected = split_softmax(l);
  c10::cuda::device_synchronize();
  std::vector<at::Tensor> results;
  for (int i = 0; i < 12; ++i) {
    const c10::cuda::CUDAStreamGuard stream(at::cuda::getStreamFromPool(i % 2 == 0));
    results.push_back(split_softmax(l));
  }
  c10::cuda::device_synchronize();
  {
    const c10::cuda::CUDAStreamGuard stream(at::cuda::getStreamFromPool());
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    results.push_back(split_softmax(l));
    results.push_back(split_softmax(l));
    graph.capture_end();
    graph.replay();
    graph.replay();
    c10::cuda::device_synchronize();
    for (const at::Tensor& result : results) {
      CHECK(result.equal(expected));
    }
  }
  // Pieces of the input are as large as it is.
  const int64_t output = expected.numel() * 4, input = l.input.numel() * 4;
  CHECK(peak_bytes(device, [&] { return split_softmax(l); }) <= output + input + output / 16);
}
