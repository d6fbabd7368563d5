// scaled_masked_softmax: scores, scales and attn_mask in all its forms, against references in long
// double and ATen's chain of mul, add or masked_fill, and softmax.

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

WARPFUSE_DEVICE_TEST("scores of each rank and dtype, scaled", "[masked][portable]") {
  const std::vector<std::vector<int64_t>> shapes = {
      {2, 3, 5, 7}, {3, 4, 33}, {6, 65}, {1, 1, 1, 1}, {1, 12, 1, 130}};
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& shape : shapes) {
      for (const double scale : {1.0, 0.125, 0.1234567, -2.0, 0.0, 1e-30}) {
        check_masked_softmax(random_with_outliers(shape, dtype, device), {.scale = scale});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("keys of every number from 1 to 130, and long rows", "[masked][portable]") {
  std::vector<int64_t> lengths = {255,  256,  257,  511,  513,   1023,
                                  1025, 2047, 4097, 8191, 16385, 50257};
  for (int64_t keys = 1; keys <= 130; ++keys) {
    lengths.push_back(keys);
  }
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : lengths) {
      const at::Tensor scores = random_tensor({1, 2, 2, keys}, dtype, device);
      MaskArguments arguments{.scale = 0.3, .attn_mask = random_bool({2, keys}, device)};
      check_masked_softmax(scores, arguments);
      arguments.attn_mask = random_tensor({2, keys}, dtype, device);
      check_masked_softmax(scores, arguments);
      check_masked_softmax(scores, {.scale = 0.3, .causal = "lower_right"});
    }
  }
}

WARPFUSE_DEVICE_TEST("a scale so large that products overflow", "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = tensor_of({1.0, 0.5, -1.0, 0.0}, dtype, device).view({1, 4});
    // The product is rounded in float32, or float64, whatever the scores are.
    for (const double scale : {1e4, 1e30, 1e38}) {
      check_masked_softmax(scores, {.scale = scale});
    }
    check_masked_softmax(scores.abs() + 0.25, {.scale = -1e30});
  }
  const at::Tensor overflow = tensor_of({10.0, 0.5}, at::kFloat, device).view({1, 2});
  const at::Tensor output = masked_softmax(overflow, {.scale = 1e38});
  CHECK(aten_mismatch(output, aten_masked_softmax(overflow, {.scale = 1e38})) == "");
  CHECK(at::isnan(output).all().item<bool>());
}

WARPFUSE_DEVICE_TEST("a mask of every broadcast shape", "[masked][portable]") {
  const std::vector<int64_t> full = {2, 3, 4, 33};
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = random_tensor(full, dtype, device);
    for (const auto& shape : broadcast_shapes(full)) {
      for (const at::Tensor& mask : masks_of_all_kinds(shape, dtype, device)) {
        check_masked_softmax(scores, {.scale = 0.5, .attn_mask = mask});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("a mask of every broadcast shape for scores of lower rank",
                     "[masked][portable]") {
  for (const std::vector<int64_t>& full : {std::vector<int64_t>{3, 4, 17}, {5, 16}}) {
    const at::Tensor scores = random_tensor(full, at::kHalf, device);
    for (const auto& shape : broadcast_shapes(full)) {
      for (const at::Tensor& mask : masks_of_all_kinds(shape, at::kHalf, device)) {
        check_masked_softmax(scores, {.attn_mask = mask});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("scores and masks of any strides and alignment", "[masked][portable]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    // Each yields [2, 3, 4, 33].
    const auto arrangements = [&](const auto& make) -> std::vector<at::Tensor> {
      return {make({33, 4, 3, 2}).permute({3, 2, 1, 0}),
              make({2, 4, 3, 33}).transpose(1, 2),
              make({2, 3, 4, 70}).slice(3, 3, 69, 2),
              make({2, 3, 9, 40}).slice(2, 1, 9, 2).slice(3, 5, 38),
              make({1, 3, 1, 33}).expand({2, 3, 4, 33}),
              make({2, 1, 4, 1}).expand({2, 3, 4, 33}),
              make({2 * 3 * 4 * 33 + 7}).narrow(0, 7, 2 * 3 * 4 * 33).view({2, 3, 4, 33})};
    };
    const auto floats = [&](at::IntArrayRef shape) { return random_tensor(shape, dtype, device); };
    const auto wide = [&](at::IntArrayRef shape) {
      return random_tensor(shape, at::kFloat, device);
    };
    const auto bools = [&](at::IntArrayRef shape) { return random_bool(shape, device); };
    for (const at::Tensor& scores : arrangements(floats)) {
      check_masked_softmax(scores, {.scale = 0.5});
      for (const auto& masks : {arrangements(floats), arrangements(wide), arrangements(bools)}) {
        for (const at::Tensor& mask : masks) {
          const MaskArguments arguments{.scale = 0.5, .attn_mask = mask};
          check_masked_softmax(scores, arguments);
          MaskArguments contiguous = arguments;
          contiguous.attn_mask = mask.contiguous();
          CHECK(bit_mismatch(masked_softmax(scores, arguments),
                             masked_softmax(scores.contiguous(), contiguous)) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("offsets of scores and masks that break alignment", "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {31, 64, 1024}) {
      const int64_t size = 6 * keys;
      const at::Tensor score_memory = random_tensor({size + 16}, dtype, device);
      const at::Tensor mask_memory = random_tensor({size + 16}, dtype, device);
      const at::Tensor bool_memory = random_bool({size + 16}, device);
      for (int64_t offset = 0; offset < 16; ++offset) {
        const auto at_offset = [&](const at::Tensor& memory, int64_t start) {
          return memory.narrow(0, start, size).view({2, 3, keys});
        };
        const at::Tensor scores = at_offset(score_memory, offset);
        check_masked_softmax(scores, {.attn_mask = at_offset(mask_memory, 15 - offset)});
        check_masked_softmax(scores, {.attn_mask = at_offset(bool_memory, 15 - offset)});
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("masked_value behaves as masked_fill after the scaling",
                     "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = random_tensor({2, 3, 4, 33}, dtype, device);
    for (const double value : {-10000.0, -finfo_max(dtype), 0.0, 2.5, -kInf}) {
      for (const at::Tensor& mask : {random_bool({2, 1, 4, 33}, device), random_bool({33}, device),
                                     at::zeros({33}, at::TensorOptions(device).dtype(at::kBool))}) {
        const MaskArguments arguments{.scale = 0.5, .attn_mask = mask, .masked_value = value};
        check_masked_softmax(scores, arguments);
        CHECK(aten_mismatch(masked_softmax(scores.to(at::kDouble), arguments),
                            aten_masked_softmax(scores.to(at::kDouble), arguments)) == "");
      }
    }
    // Filled throughout: uniform for a finite value, NaN for -inf, and not the zeros of hidden
    // keys.
    MaskArguments arguments{
        .attn_mask = at::zeros({33}, at::TensorOptions(device).dtype(at::kBool)),
        .masked_value = -10000.0};
    CHECK(masked_softmax(scores, arguments)
              .eq(at::full({}, 1.0 / 33, dtype).item())
              .all()
              .item<bool>());
    arguments.masked_value = -kInf;
    CHECK(at::isnan(masked_softmax(scores, arguments)).all().item<bool>());
    arguments.masked_value = std::nullopt;
    CHECK(masked_softmax(scores, arguments).eq(0).all().item<bool>());
  }
}

WARPFUSE_DEVICE_TEST("a filled score does not matter, a rule hides it all the same",
                     "[masked][portable]") {
  const at::Tensor scores = tensor_of({kNaN, 1.0, 2.0, kInf}, at::kFloat, device).view({1, 4});
  const at::Tensor mask = tensor_of({0, 1, 1, 0}, at::kBool, device);
  const MaskArguments arguments{.attn_mask = mask, .masked_value = 1.5};
  check_masked_softmax(scores, arguments);
  CHECK(masked_softmax(scores, arguments).gt(0).all().item<bool>());
  MaskArguments shorter = arguments;
  shorter.key_lengths = tensor_of({3}, at::kLong, device);
  check_masked_softmax(scores, shorter);
  CHECK(masked_softmax(scores, shorter)[0][3].item<float>() == 0.0F);
  CHECK(masked_softmax(scores, shorter)[0][0].item<float>() > 0.0F);
}

WARPFUSE_DEVICE_TEST("without masks it is the softmax of the scaled scores", "[masked][portable]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 7, 64, 1000, 5000}) {
      const at::Tensor scores = random_tensor({2, 3, 2, keys}, dtype, device);
      CHECK(mismatch(masked_softmax(scores, {}), expected_softmax(scores, -1)) == "");
      CHECK(aten_mismatch(masked_softmax(scores, {}), at::softmax(scores, -1)) == "");
    }
  }
}
