// scaled_masked_softmax: rows without a visible key, hidden NaN, infinities, and empty tensors.

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/errors.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

bool all_zero(const at::Tensor& tensor) { return tensor.eq(0).all().item<bool>(); }

at::Tensor row(const std::vector<double>& values, const at::Device& device,
               at::ScalarType dtype = at::kFloat) {
  return tensor_of(values, dtype, device).view({1, static_cast<int64_t>(values.size())});
}

}  // namespace

WARPFUSE_DEVICE_TEST("a row without a visible key is zero", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 5, 33, 1025}) {
      INFO(c10::toString(dtype) << ", " << keys << " keys");
      const auto options = at::TensorOptions(device);
      for (const double filling : {0.5, kNaN, kInf, -kInf}) {
        const at::Tensor scores = at::full({2, 2, 3, keys}, filling, options.dtype(dtype));
        const std::vector<MaskArguments> hiding = {
            {.attn_mask = at::zeros({keys}, options.dtype(at::kBool))},
            {.attn_mask = at::full({keys}, -kInf, options.dtype(dtype))},
            {.attn_mask = at::full({1, 1}, -kInf, options.dtype(at::kFloat))},
            {.key_lengths = at::zeros({2}, options.dtype(at::kLong))},
            {.query_positions = at::full({2, 3}, -1, options.dtype(at::kInt))},
        };
        for (const MaskArguments& arguments : hiding) {
          INFO(describe(arguments));
          const Poison poison;
          CHECK(all_zero(masked_softmax(scores, arguments)));
          check_masked_softmax(scores, arguments);
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a row is zero when rules and an additive mask leave it no key", "[masked]") {
  // NaN or an infinity at a shut key makes no difference to such a row; where another key is open
  // it is added to -inf, as in ATen's chain.
  for (const at::ScalarType dtype : kDtypes) {
    for (const at::ScalarType mask_dtype : {dtype, at::kFloat}) {
      for (const int64_t window : {1, 2, 5}) {
        const MaskArguments arguments{
            .attn_mask = at::randn({64, 31, 8}, at::kDouble)
                             .masked_fill(at::rand({64, 31, 8}).lt(0.5), -kInf)
                             .to(device, mask_dtype),
            .query_positions = at::randint(-2, 10, {64, 31}, at::kLong).to(device),
            .key_lengths = at::randint(0, 12, {64}, at::kLong).to(device),
            .window = window};
        const at::Tensor clean = random_tensor({64, 31, 8}, dtype, device);
        const at::Tensor shut = arguments.attn_mask->eq(-kInf);
        const at::Tensor visible = visible_keys(clean, arguments).to(device);
        const at::Tensor empty = visible.logical_and(~shut).any(-1, true).logical_not();
        const at::Tensor shut_by_mask = empty.logical_and(visible.any(-1, true));
        REQUIRE(shut_by_mask.sum().item<int64_t>() > 10);
        for (const double planted : {kNaN, kInf, -kInf}) {
          INFO(c10::toString(dtype) << ", " << planted << ", " << describe(arguments));
          const at::Tensor scores = clean.masked_fill(shut, planted);
          check_masked_softmax(scores, arguments);
          const at::Tensor output = masked_softmax(scores, arguments);
          const at::Tensor ones = at::ones_like(output);
          const auto [dropped, statistics, rng] = masked_dropout(scores, arguments, 0.3);
          for (const at::Tensor& result :
               {output, masked_softmax_backward(ones, output, arguments), dropped,
                masked_dropout_backward(ones, scores, statistics, rng, arguments, 0.3)}) {
            CHECK(all_zero(result.masked_select(empty)));
          }
          const at::Tensor spoilt = visible.logical_and(shut).any(-1, true).logical_and(
              planted == -kInf ? at::zeros_like(empty) : ~empty);
          CHECK(at::isnan(output).equal(visible.logical_and(spoilt)));
          CHECK(at::isnan(dropped).equal(visible.logical_and(spoilt)));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("hidden keys are exact zeros whatever their scores hold", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const double planted : {kNaN, kInf, -kInf, finfo_max(dtype)}) {
      for (const int64_t keys : {4, 9, 33, 130, 1030}) {
        INFO(c10::toString(dtype) << ", " << planted << ", " << keys << " keys");
        const at::Tensor clean = random_tensor({2, 2, 3, keys}, dtype, device);
        const at::Tensor mask = random_bool({2, 1, 3, keys}, device);
        mask.select(-1, 0).fill_(true);
        const std::vector<MaskArguments> hiding = {
            {.attn_mask = mask},
            {.causal = "lower_right"},
            {.causal = "upper_left"},
            {.key_lengths = tensor_of({1, static_cast<double>(keys - 2)}, at::kLong, device)},
            {.query_positions = at::randint(0, keys, {2, 3}, at::kLong).to(device)},
            {.causal = "lower_right", .window = 2},
            {.attn_mask = mask, .causal = "lower_right"},
        };
        for (const MaskArguments& arguments : hiding) {
          INFO(describe(arguments));
          const at::Tensor hidden = visible_keys(clean, arguments).logical_not().to(device);
          const at::Tensor scores = clean.masked_fill(hidden, planted);
          check_masked_softmax(scores, arguments);
          CHECK(bit_mismatch(masked_softmax(scores, arguments), masked_softmax(clean, arguments)) ==
                "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("hidden keys have exact zero gradients whatever their scores hold",
                     "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const double planted : {kNaN, kInf}) {
      const at::Tensor clean = random_tensor({2, 2, 3, 37}, dtype, device);
      const at::Tensor grad_output = random_tensor({2, 2, 3, 37}, dtype, device);
      const at::Tensor mask = random_bool({2, 1, 3, 37}, device);
      mask.select(-1, 0).fill_(true);
      mask[1][0][2].fill_(false);  // a row without a visible key
      const std::vector<MaskArguments> hiding = {
          {.scale = 0.5, .attn_mask = mask},
          {.causal = "lower_right", .window = 3},
          {.key_lengths = tensor_of({0, 20}, at::kLong, device)}};
      for (const MaskArguments& arguments : hiding) {
        INFO(c10::toString(dtype) << ", " << planted << ", " << describe(arguments));
        const at::Tensor hidden = visible_keys(clean, arguments).logical_not().to(device);
        const auto gradient = [&](const at::Tensor& values) {
          const at::Tensor scores = values.clone().set_requires_grad(true);
          return torch::autograd::grad({masked_softmax(scores, arguments)}, {scores},
                                       {grad_output})[0];
        };
        const at::Tensor got = gradient(clean.masked_fill(hidden, planted));
        CHECK(bit_mismatch(got, gradient(clean)) == "");
        CHECK(all_zero(got.masked_select(hidden)));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("infinities and NaN at visible keys are as in ATen's chain", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    const std::vector<std::vector<double>> rows = {
        {-kInf, -kInf, -kInf, -kInf}, {kInf, 0, 1, 2},        {0, 1, kNaN, 2},
        {-kInf, 1, 2, -kInf},         {kNaN, kNaN, 0, -kInf}, {kInf, -kInf, 0, 0},
        {-kInf, -kInf, -kInf, 3}};
    for (const auto& values : rows) {
      const at::Tensor scores = row(values, device, dtype);
      const std::vector<MaskArguments> cases = {
          {},
          {.scale = 0.5},
          {.scale = -1.0},
          {.attn_mask = row({0, -1, 2, 0.5}, device, dtype)},
          {.attn_mask = row({0, -kInf, 0, 0}, device, at::kFloat)},
          {.attn_mask = row({-kInf, -kInf, -kInf, 0}, device, at::kFloat)},
          {.attn_mask = row({kInf, 0, 0, 0}, device, at::kFloat)},
          {.attn_mask = row({kNaN, 0, 0, 0}, device, at::kFloat)},
          {.scale = 0.0},
      };
      for (const MaskArguments& arguments : cases) {
        check_masked_softmax(scores, arguments);
        const at::Tensor output = masked_softmax(scores, arguments).to(at::kDouble);
        const at::Tensor aten = aten_masked_softmax(scores.to(at::kDouble), arguments);
        INFO(describe(scores) << " " << scores << describe(arguments));
        CHECK(at::equal(at::isnan(output), at::isnan(aten)));
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a NaN row is NaN at its visible keys alone", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {4, 9, 33, 1030}) {
      const at::Tensor mask = random_bool({3, keys}, device);
      mask.select(-1, 1).fill_(true);
      mask.select(-1, keys - 1).fill_(false);
      const std::vector<MaskArguments> hiding = {
          {.attn_mask = mask},
          {.attn_mask = mask, .causal = "upper_left"},
          {.query_positions =
               at::full({1, 3}, keys - 3, at::TensorOptions(device).dtype(at::kLong))},
          {.key_lengths = tensor_of({2}, at::kLong, device)}};
      for (const MaskArguments& arguments : hiding) {
        for (const double planted : {kNaN, kInf, -kInf}) {
          at::Tensor scores = random_tensor({3, keys}, dtype, device);
          if (planted == -kInf) {
            scores.fill_(-kInf);
          } else {
            scores.select(-1, 1).fill_(planted);
          }
          scores.select(-1, keys - 1).fill_(5.0);  // hidden
          check_masked_softmax(scores, arguments);
          const at::Tensor hidden = visible_keys(scores, arguments).logical_not().to(device);
          const at::Tensor output = masked_softmax(scores, arguments);
          const at::Tensor gradient =
              masked_softmax_backward(at::ones_like(output), output, arguments);
          CHECK(all_zero(output.masked_select(hidden)));
          CHECK(all_zero(gradient.masked_select(hidden)));
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("scores and sums at the ends of a dtype's range", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    const double largest = finfo_max(dtype);
    for (const double score : {largest, -largest}) {
      const at::Tensor scores = at::full({2, 33}, score, at::TensorOptions(device).dtype(dtype));
      check_masked_softmax(scores, {});
      check_masked_softmax(scores, {.causal = "lower_right"});
      // finfo.min twice: overflows to -inf where it is the computation's own dtype, as ATen's
      // chain.
      const MaskArguments arguments{.attn_mask = at::full_like(scores, -largest)};
      const at::Tensor output = masked_softmax(scores, arguments);
      if (dtype == at::kDouble || dtype == at::kFloat) {
        CHECK(aten_mismatch(output, aten_masked_softmax(scores, arguments)) == "");
      }
      CHECK(at::equal(at::isnan(output),
                      at::isnan(aten_masked_softmax(
                          dtype == at::kDouble ? scores : scores.to(at::kFloat), arguments))));
    }
  }
}

WARPFUSE_DEVICE_TEST("empty scores", "[masked]") {
  const auto options = at::TensorOptions(device);
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 2, 3, 4},
                                              {2, 0, 3, 4},
                                              {2, 2, 0, 4},
                                              {2, 2, 3, 0},
                                              {0, 4},
                                              {3, 0},
                                              {0, 0, 0}}) {
      const at::Tensor scores = at::empty(shape, options.dtype(dtype));
      const int64_t batch = shape.size() == 2 ? 1 : shape[0];
      const int64_t queries = shape[shape.size() - 2];
      const std::vector<MaskArguments> cases = {
          {},
          {.causal = "upper_left", .window = 2},
          {.attn_mask = at::ones({1}, options.dtype(at::kBool))},
          {.query_positions = at::zeros({batch, queries}, options.dtype(at::kLong)),
           .key_lengths = at::zeros({batch}, options.dtype(at::kLong))}};
      for (const MaskArguments& arguments : cases) {
        INFO(describe(scores) << describe(arguments));
        const at::Tensor output = masked_softmax(scores, arguments);
        CHECK(output.sizes() == scores.sizes());
        CHECK(output.scalar_type() == dtype);
        CHECK(masked_softmax_backward(output, output, arguments).sizes() == scores.sizes());
      }
    }
  }
  CHECK(error_of([&] { masked_softmax(at::empty({0, 4}, options), {.causal = "both"}); }) !=
        "no error");
}

// The scaled score of the maximum's own place is the maximum itself, however large its rounding is.
WARPFUSE_DEVICE_TEST("equal scores of any size give equal weights", "[masked]") {
  for (const int64_t keys : {1, 5, 16, 33, 1025}) {
    for (const double score : {-1e30, 3e37, -3.4028234663852886e38}) {
      INFO(keys << " keys of " << score);
      const at::Tensor scores =
          at::full({1, 1, 2, keys}, score, at::TensorOptions(device).dtype(at::kFloat));
      const at::Tensor weights = warpfuse::scaled_masked_softmax(scores, 0.3);
      CHECK(at::allclose(weights, at::full_like(weights, 1.0 / static_cast<double>(keys))));
    }
  }
}
