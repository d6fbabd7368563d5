// Every kernel of the GPU once or twice, small: what scripts/sanitize_gpu.sh runs under
// compute-sanitizer.

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/logprob_checks.h"
#include "support/pch.h"
#include "support/row_functions.h"
#include "support/sampling.h"
#include "support/tensor_reference.h"

namespace {

void check_functions(int64_t heads, int64_t queries, int64_t keys, at::ScalarType dtype,
                     const at::Device& device, const Offsets& offsets) {
  for (const RowFunction& function : row_functions(heads, queries, keys, dtype, device, offsets)) {
    INFO(function.name << " of " << describe(function.rows));
    CHECK(mismatch(function.run(), function.expected()) == "");
  }
}

}  // namespace

WARPFUSE_GPU_TEST("rows in every tier", "[sanitize]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    INFO(run);
    // The last pack of the tensor is not whole; neither is the first, where it starts off.
    check_functions(1, 3, 333, at::kHalf, device, {});
    check_functions(1, 3, 333, at::kFloat, device, {.input = 1, .second = 1});
  }
  for (const at::ScalarType dtype : kDtypes) {
    check_functions(3, 5, 9, dtype, device, {});  // many rows a warp
  }
  const TuningInUse split(tuning_with("stream 32 0 4 0"));
  check_functions(1, 2, 4099, at::kBFloat16, device, {.input = 3});
}

WARPFUSE_GPU_TEST("rows with dropout in every tier", "[sanitize]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    INFO(run);
    for (const DropoutCall& order : kOrders) {
      check_dropout(random_tensor({3, 333}, at::kHalf, device), with(order, -1, 0.3));
      check_dropout(random_tensor({3, 333}, at::kFloat, device), with(order, -1, 0.3));
    }
    check_masked_dropout(random_tensor({1, 3, 333}, at::kBFloat16, device),
                         {.attn_mask = random_bool({3, 333}, device)}, 0.3);
  }
  for (const DropoutCall& order : kOrders) {
    check_dropout(random_tensor({2, 33, 5}, at::kFloat, device), with(order, 1, 0.3));
  }
}

WARPFUSE_GPU_TEST("a product, dropout and softmax in one kernel", "[sanitize]") {
  const at::Tensor input = random_tensor({100, 456}, at::kHalf, device, 1.0);
  const at::Tensor weight = random_tensor({8456, 456}, at::kHalf, device, 0.05);
  const at::Tensor bias = random_tensor({8456}, at::kHalf, device);
  const at::Tensor rng = rng_of(3, 4, device);
  const at::Tensor output = std::get<0>(linear_dropout_softmax(input, weight, bias, 0.3, rng));
  const at::Tensor of_linear = std::get<0>(
      dropout_softmax(at::linear(input.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat)),
                      {.dim = -1, .p = 0.3}, rng));
  CHECK((output.to(at::kFloat) - of_linear).abs().max().item<float>() < 5e-3F);
}

WARPFUSE_GPU_TEST("log-probabilities of targets in warps, blocks and clusters", "[sanitize]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const int64_t columns : {33, 1025, 5000, 40'001}) {
      const LogprobArguments arguments{.form = "entropy"};
      const at::Tensor logits = random_tensor({3, columns}, dtype, device);
      const at::Tensor targets = random_targets({3}, columns, device);
      check_logprob(logits, targets, arguments);
      const LogprobResults results = logprob_with_statistics(logits, targets, arguments);
      const LogprobGradients gradients = random_gradients(results, arguments.form);
      const at::Tensor grad = logprob_backward(logits, targets, results, gradients, arguments);
      logprob_backward_in_place(logits, targets, results, gradients, arguments);
      CHECK(bit_mismatch(logits, grad) == "");
    }
  }
}

WARPFUSE_GPU_TEST("tokens drawn by blocks and clusters", "[sanitize]") {
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat}) {
    for (const int64_t columns : {33, 1025, 40'001}) {
      const at::Tensor logits = random_tensor({3, columns}, dtype, device);
      for (const SampleArguments& arguments :
           {SampleArguments{.temperature = 0.0},
            SampleArguments{.temperature = 0.8, .top_k = 50, .top_p = 0.9, .min_p = 0.01}}) {
        CHECK(at::equal(sample(logits, 5, arguments).cpu(), sample(logits.cpu(), 5, arguments)));
      }
    }
  }
}

WARPFUSE_GPU_TEST("tiles of rows that are not contiguous", "[sanitize]") {
  const int64_t most = row_limits().cluster_blocks > 1 ? 3000 : 300;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 33, 16}, {2, 33, 5}, {1, most, 8}, {1, 20'000, 3}}) {
      const at::Tensor x = random_tensor(shape, dtype, device);
      INFO(describe(x));
      CHECK(mismatch(warpfuse::softmax(x, 1), tensor_softmax(x, 1, false)) == "");
      CHECK(mismatch(log_softmax_backward(x, x, 1), tensor_softmax_backward(x, x, 1, true)) == "");
    }
  }
}

WARPFUSE_GPU_TEST("the algorithms that only a name calls", "[sanitize]") {
  const at::Tensor x = random_tensor({3, 2051}, at::kFloat, device);
  for (const std::string name : {"naive", "warp"}) {
    CHECK(mismatch(softmax_algorithm(x, -1, name), tensor_softmax(x, -1, false)) == "");
  }
}
