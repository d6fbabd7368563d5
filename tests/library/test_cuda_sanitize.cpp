// Every kernel of the GPU once or twice, small: what scripts/sanitize_gpu.sh runs under
// compute-sanitizer. Each tensor is an allocation of its own and ends where that does, so that
// memcheck sees what is read behind it. Tensors come from the host and results go back there, and
// our kernels alone touch them meanwhile, as initcheck does not see what others write.

#include <warpfuse/dispatch.h>

#include "support/attention_call.h"
#include "support/compare.h"
#include "support/deform.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/linear_call.h"
#include "support/logprob_checks.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/reference.h"
#include "support/row_functions.h"
#include "support/sampling.h"
#include "support/step_call.h"

WARPFUSE_GPU_TEST("a product, dropout and softmax in one kernel", "[sanitize]") {
  const at::Tensor input = random_tensor({100, 456}, at::kHalf, at::kCPU, 1.0);
  const at::Tensor weight = random_tensor({8456, 456}, at::kHalf, at::kCPU, 0.05);
  const at::Tensor bias = random_tensor({8456}, at::kHalf);
  const at::Tensor rng = rng_of(3, 4, device);
  const at::Tensor output = std::get<0>(
      linear_dropout_softmax(input.to(device), weight.to(device), bias.to(device), 0.3, rng));
  const at::Tensor logits =
      at::linear(input.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat));
  const at::Tensor apart =
      std::get<0>(dropout_softmax(logits.to(device), {.dim = -1, .p = 0.3}, rng));
  CHECK((output.cpu().to(at::kFloat) - apart.cpu()).abs().max().item<float>() < 5e-3F);
  const at::Tensor split = std::get<0>(
      linear_dropout_softmax(input.to(at::kFloat).to(device), weight.to(at::kFloat).to(device),
                             bias.to(at::kFloat).to(device), 0.3, rng, /*split=*/true));
  CHECK((split.cpu() - apart.cpu()).abs().max().item<float>() < 1e-5F);
}

WARPFUSE_GPU_TEST("log-probabilities of targets in warps, blocks and clusters", "[sanitize]") {
  const auto check = [&](at::ScalarType dtype, int64_t columns, const std::string& form,
                         at::ScalarType index) {
    const LogprobArguments arguments{.form = form};
    const at::Tensor logits = random_tensor({3, columns}, dtype, device);
    const at::Tensor targets = random_targets({3}, columns, device, index);
    check_logprob(logits, targets, arguments);
    const LogprobResults results = logprob_with_statistics(logits, targets, arguments);
    const LogprobGradients gradients = random_gradients(results, arguments.form);
    const at::Tensor grad = logprob_backward(logits, targets, results, gradients, arguments);
    logprob_backward_in_place(logits, targets, results, gradients, arguments);
    CHECK(bit_mismatch(logits, grad) == "");
  };
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const int64_t columns : {33, 1025, 5000, 40'001}) {
      check(dtype, columns, "entropy", at::kLong);
    }
    check(dtype, 1025, "logprob", at::kInt);
    check(dtype, 1025, "lse", at::kInt);
  }
}

WARPFUSE_GPU_TEST("tokens drawn by blocks and clusters", "[sanitize]") {
  const at::Tensor step = at::full({1}, 5, at::kLong), rows = at::tensor({7, 0, 3}, at::kLong);
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const int64_t columns : {33, 1025, 40'001}) {
      const at::Tensor logits = random_tensor({3, columns}, dtype);
      for (SampleArguments arguments :
           {SampleArguments{.temperature = 0.0},
            SampleArguments{.temperature = 0.8, .top_k = 50, .top_p = 0.9, .min_p = 0.01}}) {
        arguments.rows = rows;
        const at::Tensor expected = sample(logits, step, arguments);
        arguments.rows = rows.to(device);
        CHECK(at::equal(sample(logits.to(device), step.to(device), arguments).cpu(), expected));
      }
    }
  }
}

namespace {

void check_linear(int64_t rows, int64_t in, int64_t out, at::ScalarType dtype,
                  const at::Device& device, bool argmax) {
  for (const std::string norm : {"", "layer", "rms"}) {
    const LinearCall host = random_linear({rows}, in, out, dtype, at::kCPU, norm);
    LinearCall call = host;
    move_to(device, {&call.input, &call.weight, &call.bias, &call.norm_weight, &call.norm_bias,
                     &call.residual});
    INFO(describe(host));
    const Expected expected = expected_linear(call);
    CHECK(mismatch(call.run().cpu(), {expected.values.cpu(), expected.error.cpu()}) == "");
    if (argmax) {
      CHECK(call.argmax().cpu().ge(0).all().item<bool>());
    }
  }
}

}  // namespace

WARPFUSE_GPU_TEST("linear layers of few rows, narrow and wide", "[sanitize]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const auto& [in, out] :
         std::vector<std::pair<int64_t, int64_t>>{{40, 19}, {768, 24}, {64, 8201}}) {
      for (const int64_t rows : {1, 9, 16}) {
        // Larger rows go to ATen, whose kernels the tools do not watch.
        constexpr int64_t kMaxBytes = int64_t{40} * 1024;
        const bool argmax = rows * in * at::elementSize(dtype) <= kMaxBytes;
        check_linear(rows, in, out, dtype, device, argmax);
      }
    }
  }
}

WARPFUSE_GPU_TEST("linear layers of tiles of rows", "[sanitize]") {
  check_linear(20, 200, 24, at::kHalf, device, /*argmax=*/false);
  check_linear(40, 768, 2304, at::kHalf, device, /*argmax=*/false);
}

// racecheck stops where a block loads from the shared memory of another.
WARPFUSE_GPU_TEST("linear layers whose columns a cluster shares", "[sanitize-tiles]") {
  check_linear(20, 1600, 24, at::kHalf, device, /*argmax=*/false);
  check_linear(40, 3072, 768, at::kHalf, device, /*argmax=*/false);
}

// One lane arrives for its warp at the mbarriers of its stages, which racecheck does not see.
WARPFUSE_GPU_TEST("weights streamed past rows", "[sanitize-tiles]") {
  check_linear(40, 200, 9001, at::kHalf, device, /*argmax=*/true);
  check_linear(70, 64, 9001, at::kHalf, device, /*argmax=*/true);
}

namespace {

void check_attention(int64_t tokens, const at::Device& device) {
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const auto& [head_dim, slots] :
         std::vector<std::pair<int64_t, int64_t>>{{33, 300}, {64, 300}, {64, 100}}) {
      const AttentionCall host = random_attention(
          {.batch = 2, .heads = 4, .tokens = tokens, .slots = slots, .head_dim = head_dim}, dtype,
          at::kCPU);
      AttentionCall call = host;
      move_to(device, {&call.query, &call.key, &call.value, &call.cache, &call.positions});
      INFO(describe(host));
      const auto [values, error] = expected_attention(host, device);
      // As it lies in memory: ATen makes it contiguous on the GPU before it comes here.
      CHECK(mismatch(call.run().transpose(1, 2), {values.transpose(1, 2), error.transpose(1, 2)}) ==
            "");
      CHECK(bit_mismatch(call.cache.cpu(), expected_cache(host)) == "");
    }
  }
}

}  // namespace

WARPFUSE_GPU_TEST("attention that writes its cache", "[sanitize]") {
  for (const int64_t tokens : {1, 5}) {
    check_attention(tokens, device);
  }
}

// One lane arrives for its warp at the mbarriers of its stages, which racecheck does not see.
WARPFUSE_GPU_TEST("attention of a prompt by tiles", "[sanitize-tiles]") {
  check_attention(70, device);
}

// Its mbarriers are those of the tiles above: one lane arrives for its warp.
WARPFUSE_GPU_TEST("a decode step in one kernel", "[sanitize-tiles]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    StepCall call = random_step({.batch = 3, .vocabulary = 2001, .slots = 40}, dtype, device);
    CHECK(call.run().ge(0).all().item<bool>());
  }
}

WARPFUSE_GPU_TEST("points of deformable attention, forward and backward", "[sanitize]") {
  using OptionalTensor = std::optional<at::Tensor>;
  using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  const auto op = warpfuse::detail::find_operator<Gradients(
      const at::Tensor&, const OptionalTensor&, const at::Tensor&, const at::Tensor&,
      const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
      "warpfuse::_ms_deform_attn_backward");
  const auto gradients = [&](const DeformInputs& in, const at::Tensor& grad,
                             const OptionalTensor& output) {
    const auto [value, locations, weights] =
        op.call(grad, output, in.value, in.shapes, in.starts, in.locations, in.weights);
    std::vector<at::Tensor> ours{locations.cpu().flatten(), weights.cpu().flatten()};
    if (value.scalar_type() == at::kFloat) {  // ATen rounds those of other dtypes
      ours.push_back(value.cpu().flatten());
    }
    return at::cat(ours).to(at::kDouble);
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const int64_t channels : {3, 32}) {
      INFO(dtype << " " << channels);
      const DeformShape shape{.queries = 9, .channels = channels, .levels = {{3, 4}, {1, 1}}};
      const DeformInputs host(shape, dtype, at::kCPU);
      DeformInputs in = host;
      move_to(device, {&in.value, &in.shapes, &in.starts, &in.locations, &in.weights});
      const at::Tensor output = in.attend_softmax();
      CHECK(deform_mismatch(in.attend(), host) == "");
      CHECK(deform_mismatch(output, host, /*softmax=*/true) == "");
      const at::Tensor grad = random_tensor(output.sizes(), dtype);
      for (const bool softmax : {false, true}) {
        const auto given = [&](const at::Tensor& tensor) {
          return softmax ? OptionalTensor(tensor) : std::nullopt;
        };
        CHECK(far_apart(gradients(in, grad.to(device), given(output)),
                        gradients(host, grad, given(output.cpu())), 5e-3) == "");
      }
    }
  }
}

WARPFUSE_GPU_TEST("tiles of rows that are not contiguous", "[sanitize]") {
  const int64_t most = row_limits().cluster_blocks > 1 ? 3000 : 300;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 33, 16}, {2, 33, 5}, {1, most, 8}, {1, 20'000, 3}}) {
      const at::Tensor x = random_tensor(shape, dtype), there = x.to(device);
      INFO(describe(x));
      CHECK(mismatch(warpfuse::softmax(there, 1), expected_softmax(x, 1)) == "");
      CHECK(mismatch(log_softmax_backward(there, there, 1),
                     expected_softmax_backward(x, x, 1, true)) == "");
    }
  }
}

WARPFUSE_GPU_TEST("the algorithms that only a name calls", "[sanitize]") {
  const at::Tensor x = random_tensor({3, 2051}, at::kFloat);
  for (const std::string name : {"naive", "warp"}) {
    CHECK(mismatch(softmax_algorithm(x.to(device), -1, name), expected_softmax(x, -1)) == "");
  }
}
