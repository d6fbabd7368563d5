// fused_logprob past 2^31 elements, in all and in a row, and past 2^16 rows.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/logprob.h"
#include "support/logprob_checks.h"
#include "support/pch.h"

#ifdef WARPFUSE_WITH_CUDA
#include "support/gpu_memory.h"
#endif

WARPFUSE_DEVICE_TEST("fused_logprob of more rows than a grid's second dimension has blocks",
                     "[logprob][large]") {
  for (const int64_t columns : {2, 40}) {
    const at::Tensor period = random_tensor({1000, columns}, at::kFloat, device);
    const at::Tensor targets = random_targets({1000}, columns, device);
    const at::Tensor many = period.repeat({200, 1}).set_requires_grad(true);
    const at::Tensor few = warpfuse::fused_logprob(period, targets);
    CHECK(mismatch(few, expected_logprob(period, targets, {}).logprob) == "");
    const at::Tensor got = warpfuse::fused_logprob(many, targets.repeat({200}));
    CHECK(bit_mismatch(got, few.repeat({200})) == "");
    const at::Tensor gradient = torch::autograd::grad({got.sum()}, {many})[0];
    CHECK(bit_mismatch(gradient.narrow(0, 199'000, 1000), gradient.narrow(0, 0, 1000)) == "");
  }
}

#ifdef WARPFUSE_WITH_CUDA
WARPFUSE_GPU_TEST("fused_logprob of more than 2^31 elements", "[logprob][large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  // Rows of an odd length begin at every alignment; one period shows what all others must give.
  for (const int64_t columns : {33, 50'257}) {
    const int64_t distinct = columns == 33 ? 1000 : 7;
    const at::Tensor period = random_tensor({distinct, columns}, at::kHalf, device);
    const at::Tensor targets = random_targets({distinct}, columns, device, at::kInt);
    const int64_t repeats = (int64_t{1} << 31) / period.numel() + 2;
    const at::Tensor x = period.repeat({repeats, 1});
    REQUIRE(x.numel() > int64_t{1} << 31);
    const at::Tensor all_targets = targets.repeat({repeats});
    for (const std::string& form : kLogprobForms) {
      INFO(columns << " columns, " << form);
      const LogprobArguments a{.form = form};
      check_logprob(period, targets, a);
      const LogprobResults few = logprob_with_statistics(period, targets, a);
      const LogprobResults all = logprob_with_statistics(x, all_targets, a);
      CHECK(all.logprob.view({repeats, distinct}).eq(few.logprob).all().item<bool>());
      CHECK(all.statistics.view({repeats, distinct, 2}).eq(few.statistics).all().item<bool>());
      const LogprobGradients gradients = random_gradients(few, form);
      const auto repeated = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.repeat({repeats}) : at::Tensor();
      };
      const at::Tensor expected = logprob_backward(period, targets, few, gradients, a);
      CHECK(mismatch(expected, expected_logprob_backward(period, targets, gradients, a)) == "");
      const at::Tensor memory = x.clone();
      logprob_backward_in_place(
          memory, all_targets, all,
          {repeated(gradients.logprob), repeated(gradients.lse), repeated(gradients.entropy)}, a);
      CHECK(memory.view({repeats, distinct, columns}).eq(expected).all().item<bool>());
    }
  }
}

WARPFUSE_GPU_TEST("fused_logprob of a row of more than 2^31 elements", "[logprob][large][huge]") {
  if (skip_below_32_gib()) {
    return;
  }
  const int64_t columns = (int64_t{1} << 31) + 7;
  const at::Tensor x = at::zeros({1, columns}, at::TensorOptions(device).dtype(at::kHalf));
  x[0][columns - 1].fill_(10.0);
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const double log_sum = std::log(static_cast<double>(columns - 1) + std::exp(10.0));
  const auto logprob_of = [&](int64_t target) {
    return warpfuse::fused_logprob(x, at::full({1}, target, options)).item<double>();
  };
  CHECK(std::abs(logprob_of(columns - 1) - (10.0 - log_sum)) < 1e-4);
  CHECK(std::abs(logprob_of(columns - 2) + log_sum) < 1e-4);
  const at::Tensor target = at::full({1}, columns - 1, options);
  const LogprobResults kept = logprob_with_statistics(x, target, {});
  const at::Tensor gradient =
      logprob_backward(x, target, kept, {.logprob = at::ones_like(kept.logprob)}, {});
  CHECK(std::abs(gradient[0][columns - 1].item<double>() - 1.0) < 1e-3);
}
#endif
