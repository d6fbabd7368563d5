// scaled_masked_softmax_dropout: every mask of scaled_masked_softmax with dropout behind it,
// forward and backward, against a reference in float64 with the same mask of elements.

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

std::vector<MaskArguments> rule_sets(at::IntArrayRef shape, at::ScalarType dtype,
                                     const at::Device& device) {
  const int64_t batch = shape[0], queries = shape[2], keys = shape[3];
  const auto options = at::TensorOptions(device);
  at::Tensor lowest = random_tensor({queries, keys}, at::kFloat, device);
  lowest = lowest.masked_fill(lowest > 3.0, -kInf);
  return {
      {},
      {.scale = 0.7, .causal = "upper_left"},
      {.scale = -0.3, .causal = "lower_right", .window = 2},
      {.attn_mask = random_bool({batch, 1, queries, keys}, device)},
      {.attn_mask = random_bool({keys, queries}, device).t()},
      {.scale = 2.0, .attn_mask = random_bool({queries, keys}, device), .masked_value = -0.5},
      {.attn_mask = at::zeros({keys}, options.dtype(at::kBool))},
      {.attn_mask = at::zeros({keys}, options.dtype(at::kBool)), .masked_value = -10000.0},
      {.scale = 0.5, .attn_mask = random_tensor({1, keys}, dtype, device)},
      {.scale = 0.5, .attn_mask = lowest, .causal = "lower_right"},
      {.query_positions = at::randint(-1, keys, {batch, queries}, at::kLong).to(device)},
      {.scale = 0.5, .key_lengths = at::randint(0, keys + 1, {batch}, at::kInt).to(device)},
  };
}

at::Tensor public_call(const at::Tensor& scores, const MaskArguments& a, double p, bool training) {
  return warpfuse::scaled_masked_softmax_dropout(scores, a.scale, a.attn_mask, a.causal,
                                                 a.query_positions, a.key_lengths, a.window,
                                                 a.masked_value, p, training);
}

}  // namespace

WARPFUSE_DEVICE_TEST("every mask with dropout behind it", "[masked][dropout][portable]") {
  std::vector<std::vector<int64_t>> shapes = {
      {1, 1, 2, 1023}, {1, 2, 1, 4097}, {1, 1, 1, 50257}, {2, 3, 65, 64}};
  for (int64_t keys = 2; keys <= 130; keys += keys < 24 ? 1 : 13) {
    shapes.push_back({2, 2, 3, keys});
  }
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& shape : shapes) {
      for (const MaskArguments& arguments : rule_sets(shape, dtype, device)) {
        check_masked_dropout(random_tensor(shape, dtype, device), arguments, 0.3);
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("scores of two and three dimensions, and with any strides",
                     "[masked][dropout][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    check_masked_dropout(random_tensor({5, 33}, dtype, device), {.causal = "upper_left"}, 0.4);
    check_masked_dropout(random_tensor({3, 5, 33}, dtype, device), {.causal = "lower_right"}, 0.4);
    check_masked_dropout(random_tensor({2, 3, 33, 6}, dtype, device).transpose(2, 3),
                         {.scale = 0.5}, 0.4);
    check_masked_dropout(random_tensor({2, 3, 6, 34}, dtype, device).slice(3, 1), {.scale = 0.5},
                         0.4);
  }
}

WARPFUSE_DEVICE_TEST("without training, or with p = 0, it is scaled_masked_softmax",
                     "[masked][dropout][portable]") {
  const at::Tensor scores = random_tensor({2, 2, 5, 33}, at::kFloat, device);
  for (const MaskArguments& arguments : rule_sets({2, 2, 5, 33}, at::kFloat, device)) {
    const at::Tensor expected = masked_softmax(scores, arguments);
    CHECK(bit_mismatch(public_call(scores, arguments, 0.5, false), expected) == "");
    CHECK(bit_mismatch(public_call(scores, arguments, 0.0, true), expected) == "");
    CHECK(public_call(scores, arguments, 1.0, true).eq(0).all().item<bool>());
  }
  CHECK(bit_mismatch(warpfuse::scaled_masked_softmax_dropout(scores), masked_softmax(scores, {})) ==
        "");
}

WARPFUSE_DEVICE_TEST("what hidden keys hold does not matter, forward and backward",
                     "[masked][dropout][portable]") {
  const double p = 0.3;
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor rng = rng_of(5, 8, device);
    const at::Tensor scores = random_tensor({2, 2, 9, 40}, dtype, device);
    for (const MaskArguments& arguments :
         {MaskArguments{.causal = "upper_left"},
          MaskArguments{.attn_mask = random_bool({9, 40}, device)},
          MaskArguments{.key_lengths = at::tensor({7, 0}, at::kLong).to(device)}}) {
      const at::Tensor hidden = visible_keys(scores, arguments).logical_not().to(device);
      const at::Tensor grad = random_tensor({2, 2, 9, 40}, dtype, device);
      const auto [output, statistics, used] = masked_dropout(scores, arguments, p, rng);
      const at::Tensor expected =
          masked_dropout_backward(grad, scores, statistics, rng, arguments, p);
      for (const double value : {kNaN, kInf, -kInf}) {
        const at::Tensor filled = scores.masked_fill(hidden, value);
        const auto [got, rows, again] = masked_dropout(filled, arguments, p, rng);
        INFO(describe(arguments) << ", hidden keys hold " << value);
        CHECK(bit_mismatch(got, output) == "");
        CHECK(bit_mismatch(masked_dropout_backward(grad.masked_fill(hidden, kNaN), filled, rows,
                                                   rng, arguments, p),
                           expected) == "");
        CHECK(got.masked_select(hidden).eq(0).all().item<bool>());
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a row without a visible key is zero, whatever an additive mask hides",
                     "[masked][dropout][portable]") {
  const at::Tensor rng = rng_of(5, 8, device);
  for (const at::ScalarType dtype : kDtypes) {
    at::Tensor mask = at::zeros({3, 33}, at::TensorOptions(device).dtype(dtype));
    mask[1].fill_(-kInf);
    const MaskArguments arguments{.scale = 0.5, .attn_mask = mask};
    const at::Tensor scores = random_tensor({3, 33}, dtype, device);
    const at::Tensor grad = random_tensor({3, 33}, dtype, device);
    const auto [output, statistics, used] = masked_dropout(scores, arguments, 0.3, rng);
    CHECK(output[1].eq(0).all().item<bool>());
    CHECK(statistics[1][0].item<double>() == kInf);
    CHECK(statistics[1][1].item<double>() == 0);
    const at::Tensor got = masked_dropout_backward(grad, scores, statistics, rng, arguments, 0.3);
    CHECK(got[1].eq(0).all().item<bool>());
    CHECK(at::isfinite(got).all().item<bool>());
    CHECK(got[0].ne(0).any().item<bool>());
  }
}

WARPFUSE_DEVICE_TEST("the gradient of an additive mask is summed before it is rounded",
                     "[masked][dropout][gradient][portable]") {
  const double p = 0.3;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType mask_type : {dtype, at::kFloat}) {
      const at::Tensor scores =
          random_tensor({2, 3, 64, 33}, dtype, device).set_requires_grad(true);
      const at::Tensor mask = random_tensor({1, 33}, mask_type, device).set_requires_grad(true);
      const at::Tensor grad = random_tensor({2, 3, 64, 33}, dtype, device);
      // A scale of 0 leaves nothing of the scores' gradient to have the mask's from.
      for (const double scale : {0.5, 0.0}) {
        const MaskArguments arguments{.scale = scale, .attn_mask = mask};
        const auto [output, statistics, rng] = masked_dropout(scores, arguments, p);
        const auto got = torch::autograd::grad({output}, {scores, mask}, {grad});
        const at::Tensor factors = plain_factors(scores.sizes(), p, rng).to(device);
        const at::Tensor s = scores.detach().to(at::kDouble);
        const at::Tensor m = mask.detach().to(at::kDouble).set_requires_grad(true);
        const at::Tensor exact = torch::autograd::grad({at::softmax(s * scale + m, -1) * factors},
                                                       {m}, {grad.to(at::kDouble)})[0];
        CHECK(got[0].scalar_type() == dtype);
        CHECK(got[1].scalar_type() == mask_type);
        const double tolerance = mask_type == at::kFloat  ? 1e-5
                                 : mask_type == at::kHalf ? 1e-3
                                                          : 8e-3;
        CHECK(far_apart(got[1], exact, tolerance) == "");
      }
    }
  }
}
