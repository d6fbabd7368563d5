// Attention without a mask tensor: the scale multiplies the exponents, by the kernels of softmax
// where no key is hidden, and by those of mask tensors where rules have none.

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_engine.h"
#include "support/row_functions.h"

namespace {

void check_unmasked(const at::Tensor& scores, double scale, bool as_softmax) {
  INFO("scale " << scale << ", scores " << scores.sizes() << ' ' << scores.dtype());
  const MaskArguments arguments{.scale = scale};
  const at::Tensor grad = random_at(1, scores.sizes(), scores.scalar_type(), scores.device());
  at::Tensor output, grad_scores, y;
  const Poison poison;
  const nlohmann::json attention = launches_during([&] {
    output = masked_softmax(scores, arguments);
    grad_scores = masked_softmax_backward(grad, output, arguments);
  });
  CHECK(mismatch(output, expected_masked_softmax(scores, arguments)) == "");
  CHECK(mismatch(grad_scores, expected_masked_softmax_backward(grad, output, arguments)) == "");
  const nlohmann::json softmax_alone = launches_during([&] {
    y = kSoftmaxOperators[0](scores, -1);
    softmax_backward(grad, output, -1);
  });
  CHECK(attention.back() == softmax_alone.back());
  if (as_softmax) {
    CHECK(attention == softmax_alone);
  }
  if (scale == 1) {
    CHECK(bit_mismatch(output, y) == "");
  }
}

}  // namespace

WARPFUSE_GPU_TEST("attention that hides no key runs as softmax does", "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    // Each tier, with and without alignment, and rows that begin at words.
    for (const int64_t keys : {1, 8, 13, 46, 50, 129, 577, 1100, 5000, 40000, 300001}) {
      const at::Tensor scores = random_at(1, {2, 3, keys > 1000 ? 1 : 37, keys}, dtype, device);
      for (const double scale : {1.0, 0.125, 1e-3, 0.3}) {
        check_unmasked(scores, scale, true);
      }
      for (const double scale : {2.0, -0.5, 0.0}) {
        check_unmasked(scores, scale, false);
      }
    }
  }
}

WARPFUSE_GPU_TEST("scores of any size that a scale divides", "[masked][portable]") {
  for (const at::ScalarType dtype : kInferenceDtypes) {
    const double largest = finfo_max(dtype);
    for (const int64_t keys : {13, 46, 129, 577, 1100, 40000}) {
      const at::Tensor scores = random_at(1, {10, keys}, dtype, device);
      fill_extremes(scores);
      scores[6][2] = largest;
      scores[7].mul_(dtype == at::kHalf ? 10000 : 50000);
      scores[8].mul_(largest / 65504).mul_(5000);
      for (const double scale : {1.0, 0.125, 0x1p-10, 0x1p-64}) {
        check_unmasked(scores.view({1, 1, 10, keys}), scale, true);
      }
    }
  }
}

WARPFUSE_GPU_TEST("rules hide keys of scores of any size, with any scale", "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {13, 46, 104, 129, 577, 1100, 1104, 40000}) {
      const at::Tensor scores = random_at(1, {10, keys}, dtype, device);
      const at::Tensor extremes = scores.clone();
      fill_extremes(extremes);
      extremes[6][keys - 9] = finfo_max(dtype);
      for (const double scale : {2.0, 1.0, 0.3, 0x1p-64, 0x1p-124, 0.0, -0.5}) {
        const MaskArguments window{.scale = scale, .causal = "lower_right", .window = keys / 2 + 3};
        check_masked_softmax(scores.view({1, 1, 10, keys}), window);
        if (scale >= 0 && scale <= 1) {  // else the largest scores overflow
          check_masked_softmax(extremes.view({1, 1, 10, keys}), window);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("rules without kernels run as with a mask tensor that hides no key",
                  "[masked][dropout][portable]") {
  const at::Tensor rng = rng_of(2026, 46, device);
  const at::TensorOptions options(device);
  const at::Tensor lengths = at::tensor({2, 0, 900}, options.dtype(at::kLong));
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::string stream : {"", "stream 64 0 1 0", "stream 128 0 3 0"}) {
      if (stream.empty() && dtype != at::kDouble) {
        continue;  // float64 by the tiers of the table, other types by this one alone
      }
      std::optional<TuningInUse> tuning;
      if (!stream.empty()) {
        tuning.emplace(tuning_with(stream));
      }
      for (const int64_t keys : {13, 129, 1100, 5000}) {
        const at::Tensor scores = random_at(1, {3, 2, 7, keys}, dtype, device);
        const at::Tensor grad = random_at(0, scores.sizes(), dtype, device);
        for (const MaskArguments& rules :
             {MaskArguments{.scale = 0.3, .causal = "lower_right"},
              MaskArguments{
                  .causal = "lower_right", .key_lengths = lengths.clamp_max(keys), .window = 9}}) {
          INFO(describe(scores) << ", " << describe(rules) << ", " << stream);
          const auto run = [&](const MaskArguments& arguments) {
            const at::Tensor y = masked_softmax(scores, arguments);
            const auto [output, statistics, used] = masked_dropout(scores, arguments, 0.3, rng);
            return std::array{
                y, masked_softmax_backward(grad, y, arguments), output, statistics,
                masked_dropout_backward(grad, scores, statistics, used, arguments, 0.3)};
          };
          MaskArguments with_tensor = rules;
          with_tensor.attn_mask = at::ones({1, 1, 1, 1}, options.dtype(at::kBool));
          std::array<at::Tensor, 5> results, expected;
          const Poison poison;
          const nlohmann::json alone = launches_during([&] { results = run(rules); });
          CHECK(alone == launches_during([&] { expected = run(with_tensor); }));
          for (size_t i = 0; i < results.size(); ++i) {
            INFO("result " << i);
            CHECK(bit_mismatch(results[i], expected[i]) == "");
          }
          CHECK(mismatch(results[0], expected_masked_softmax(scores, rules)) == "");
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("attention whose scores are all the lowest is even, and so are its gradients",
                  "[masked][dropout][portable]") {
  const at::Tensor rng = rng_of(2026, 44, device);
  for (const at::ScalarType dtype : kInferenceDtypes) {
    for (const int64_t keys : {13, 129, 1100, 40000}) {
      const at::Tensor equal = at::zeros({1, 2, 3, keys}, at::TensorOptions(device).dtype(dtype));
      const at::Tensor lowest = at::full_like(equal, -finfo_max(dtype));
      const at::Tensor grad = random_at(0, equal.sizes(), dtype, device);
      // Scales whose product with the lowest value is rounded.
      for (const double scale : {0.7, 0.3}) {
        for (const MaskArguments& arguments :
             {MaskArguments{.scale = scale},
              MaskArguments{.scale = scale, .causal = "lower_right"}}) {
          INFO(describe(lowest) << ", " << describe(arguments));
          const auto run = [&](const at::Tensor& scores) {
            const auto [output, statistics, used] = masked_dropout(scores, arguments, 0.3, rng);
            return std::array{
                masked_softmax(scores, arguments), output,
                masked_dropout_backward(grad, scores, statistics, used, arguments, 0.3)};
          };
          const auto expected = run(equal), got = run(lowest);
          for (size_t i = 0; i < got.size(); ++i) {
            INFO("result " << i);
            CHECK(aten_mismatch(got[i], expected[i], 1e-6) == "");
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("dropout of scores that are all huge is even among those that are kept",
                  "[dropout][portable]") {
  const at::Tensor rng = rng_of(2026, 44, device);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t columns : {13, 129, 1100, 40000}) {
      const at::Tensor large =
          at::full({9, columns}, 1000.0, at::TensorOptions(device).dtype(dtype));
      INFO(describe(large));
      const DropoutCall call{.p = 0.3};
      const at::Tensor expected = std::get<0>(dropout_softmax(large, call, rng));
      for (const double value : {1e8, 1e30, 2e38}) {
        const at::Tensor huge = at::full_like(large, value);
        CHECK(aten_mismatch(std::get<0>(dropout_softmax(huge, call, rng)), expected) == "");
      }
    }
  }
}
