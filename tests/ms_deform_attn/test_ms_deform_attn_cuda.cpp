// The kernels of ms_deform_attn on CUDA: which one runs, graphs and streams.

#include <torch/csrc/autograd/autograd.h>

#include "support/captured.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/gpu_memory.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

using namespace std::string_literals;

WARPFUSE_GPU_TEST("deformable attention's branches", "[ms_deform_attn]") {
  const auto ran = [&](const DeformShape& shape, const std::string& counter) {
    const DeformInputs in(shape, at::kHalf, device);
    const int64_t before = warpfuse::call_count(counter);
    in.attend();
    return warpfuse::call_count(counter) - before;
  };
  CHECK(ran({.channels = 32}, "ms_deform_attn.vector") == 1);
  CHECK(ran({.channels = 30}, "ms_deform_attn.vector") == 0);
  CHECK(ran({.channels = 30}, "ms_deform_attn.scalar") == 1);
  CHECK(ran({.channels = 32}, "ms_deform_attn.split") == 1);
  CHECK(ran({.queries = 20000, .channels = 32}, "ms_deform_attn.split") == 0);
}

WARPFUSE_GPU_TEST("branches of deformable attention's gradients", "[ms_deform_attn]") {
  const auto check = [&](int64_t channels, bool deterministic, const std::string& branch) {
    DeformInputs in({.channels = channels}, at::kHalf, device);
    in.value.requires_grad_();
    const at::Tensor sum = in.attend().sum();
    const DeterministicAlgorithms mode(deterministic);
    for (const char* const counter : {"vector", "scalar", "deterministic"}) {
      INFO(channels << " channels, " << counter);
      const CounterDelta runs("ms_deform_attn_backward." + std::string(counter));
      torch::autograd::grad({sum}, {in.value}, {}, /*retain_graph=*/true);
      CHECK(runs() == (counter == branch || (deterministic && counter == "scalar"s) ? 1 : 0));
    }
  };
  check(32, false, "vector");
  check(30, false, "scalar");
  check(32, true, "deterministic");
}

WARPFUSE_GPU_TEST("deformable attention of many rows", "[ms_deform_attn]") {
  const DeformShape shape{.batches = 3,
                          .queries = 4001,
                          .heads = 8,
                          .channels = 32,
                          .points = 4,
                          .levels = {{60, 60}, {17, 13}}};
  const DeformInputs in(shape, at::kHalf, device, at::kFloat, at::kFloat);
  CHECK(deform_mismatch(in.attend(), in) == "");
  CHECK(deform_mismatch(in.attend_softmax(), in, true) == "");
}

WARPFUSE_GPU_TEST("deformable attention of rows for more than 2^32 threads",
                  "[ms_deform_attn][large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  const int64_t rows = (int64_t{1} << 27) + 100;  // a warp each, for 17 channels
  const auto options = at::TensorOptions(device).dtype(at::kHalf);
  const at::Tensor value = at::full({1, 4, 1, 17}, 3, options),
                   shapes = at::full({1, 2}, 2, options.dtype(at::kLong)),
                   starts = at::zeros({1}, options.dtype(at::kLong)),
                   locations = at::full({1, rows, 1, 1, 1, 2}, 0.5, options),
                   weights = at::ones({1, rows, 1, 1, 1}, options);
  at::full({rows, 17}, kNaN, options);  // what is in the output's memory before
  const at::Tensor output = warpfuse::ms_deform_attn(value, shapes, starts, locations, weights);
  CHECK(output.eq(3).all().item<bool>());
}

WARPFUSE_GPU_TEST("deformable attention in a CUDA graph and on two streams", "[ms_deform_attn]") {
  const DeformInputs in({.queries = 300, .channels = 32}, at::kHalf, device);
  check_in_a_graph_and_on_two_streams([&] { return in.attend(); }, in.attend());
}
