// Rows and elements of a kind in every tier: one visible key, NaN, infinities, the largest numbers.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/row_functions.h"
#include "support/softmax_checks.h"

namespace {

/// Calls check(run) under a table for each way to run.
template <typename Check>
void for_all_tiers(const Check& check) {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    INFO(run);
    check();
  }
}

/// The same elements behind `offset` others, which no row may see, at the end of their memory.
at::Tensor among_others(const at::Tensor& mask, int64_t offset) {
  const at::Tensor memory = mask.scalar_type() == at::kBool
                                ? at::ones({mask.numel() + offset}, mask.options())
                                : at::full({mask.numel() + offset}, kNaN, mask.options());
  const at::Tensor part = memory.narrow(0, offset, mask.numel()).view(mask.sizes());
  part.copy_(mask);
  return part;
}

}  // namespace

WARPFUSE_GPU_TEST("mask tensors wherever their rows start, with any strides", "[edges][portable]") {
  // Rows of 333 keys start at each offset from a word.
  const int64_t queries = 5, keys = 333;
  for_all_tiers([&] {
    for (const at::ScalarType dtype : kDtypes) {
      std::vector<at::Tensor> masks;
      for (const at::Tensor& mask : masks_of_all_kinds({queries, keys}, dtype, device)) {
        masks.push_back(among_others(mask, 0));
        masks.push_back(among_others(mask, 1));
        masks.push_back(among_others(mask.t(), 1).t());
        masks.push_back(at::stack({mask, at::zeros_like(mask)}, -1).select(-1, 0));
        masks.push_back(mask.narrow(1, 0, 1).expand({queries, keys}));
      }
      for (const int64_t offset : {0, 1}) {
        const at::Tensor scores = random_at(offset, {2, queries, keys}, dtype, device);
        const at::Tensor grad = random_at(offset, {2, queries, keys}, dtype, device);
        for (const at::Tensor& mask : masks) {
          for (const char* causal : {"none", "lower_right"}) {
            const MaskArguments a{.scale = 0.7, .attn_mask = mask, .causal = causal};
            check_masked_softmax(scores, a);
            const at::Tensor output = masked_softmax(scores, a);
            INFO(describe(scores) << ", " << offset << " elements off, " << describe(a));
            CHECK(mismatch(masked_softmax_backward(grad, output, a),
                           expected_masked_softmax_backward(grad, output, a)) == "");
          }
        }
      }
    }
  });
}

WARPFUSE_GPU_TEST("a row's only visible key, wherever it is", "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t keys = 333;
      const std::vector<int64_t> places = {0, 1, 2, 7, 8, 9, 160, 325, 330, 331, 332};
      const auto queries = static_cast<int64_t>(places.size());
      const at::Tensor place = at::tensor(places, at::kLong).to(device);
      const at::Tensor only =
          at::arange(keys, at::TensorOptions(device).dtype(at::kLong)) == place.view({queries, 1});
      const at::Tensor shut = at::zeros({queries, keys}, at::TensorOptions(device))
                                  .masked_fill(only.logical_not(), -kInf);
      for (const int64_t offset : {0, 1}) {
        const at::Tensor scores = random_at(offset, {1, queries, keys}, dtype, device);
        for (const MaskArguments& a : std::vector<MaskArguments>{
                 {.attn_mask = only},
                 {.attn_mask = shut},
                 {.attn_mask = shut.to(dtype)},
                 {.query_positions = place.view({1, queries}), .window = 1}}) {
          INFO(describe(scores) << ", " << offset << " elements off, " << describe(a));
          const Poison poison;
          const at::Tensor output = masked_softmax(scores, a);
          CHECK(output.select(0, 0).eq(only).all().item<bool>());
          // The gradient of a row that is 1 at one place is 0, and the other places have none.
          CHECK(masked_softmax_backward(scores, output, a).eq(0).all().item<bool>());
        }
      }
    }
  });
}

WARPFUSE_GPU_TEST("rows that end before the first aligned address behind their start",
                  "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : kDtypes) {
      for (int64_t columns = 1; columns <= 8; ++columns) {
        for (const int64_t offset : {0, 1, 3, 7}) {
          const at::Tensor x = random_at(offset, {200, columns}, dtype, device);
          const at::Tensor grad = random_at(offset, {200, columns}, dtype, device);
          INFO(describe(x) << ", " << offset << " elements off");
          const at::Tensor output = warpfuse::softmax(x, -1);
          CHECK(mismatch(output, expected_softmax(x, -1)) == "");
          CHECK(mismatch(softmax_backward(grad, output, -1),
                         expected_softmax_backward(grad, output, -1)) == "");
        }
      }
    }
  });
}

WARPFUSE_GPU_TEST("hidden keys are zeros in rows of NaN and infinities", "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
      for (const double value : {kNaN, kInf, -kInf}) {
        for (const int64_t offset : {0, 1}) {
          const at::Tensor scores = random_at(offset, {1, 5, 333}, dtype, device);
          scores.select(1, 2).fill_(value);
          scores.select(2, 0).fill_(value);
          scores.select(2, 332).fill_(value);
          for (const MaskArguments& a : std::vector<MaskArguments>{
                   {.causal = "upper_left"},
                   {.causal = "lower_right", .window = 7},
                   {.attn_mask = random_bool({5, 333}, device)},
                   {.attn_mask = random_bool({5, 333}, device), .causal = "lower_right"}}) {
            INFO(value << ", " << offset << " elements off");
            check_masked_softmax(scores, a);
            const at::Tensor output = masked_softmax(scores, a);
            CHECK(masked_softmax_backward(scores, output, a)
                      .masked_select(visible_keys(scores, a).logical_not().to(device))
                      .eq(0)
                      .all()
                      .item<bool>());
          }
        }
      }
    }
  });
}

WARPFUSE_GPU_TEST("a row of NaN, of infinities, and of one value", "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : kDtypes) {
      for (const double value : {0.0, kNaN, kInf, -kInf, finfo_max(dtype), -finfo_max(dtype)}) {
        INFO(c10::toString(dtype) << ", rows of " << value);
        const at::Tensor x = at::full({2, 901}, value, at::TensorOptions(device).dtype(dtype));
        const Poison poison;
        CHECK(mismatch(warpfuse::softmax(x, -1), expected_softmax(x, -1)) == "");
        CHECK(mismatch(warpfuse::log_softmax(x, -1), expected_softmax(x, -1, true)) == "");
        CHECK(mismatch(masked_softmax(x, {.causal = "lower_right"}),
                       expected_masked_softmax(x, {.causal = "lower_right"})) == "");
      }
    }
  });
}

// Exponentials of half precision scores are relative to a rounded product, and from 2^16 on in
// another base; with a spread, warps of a row lie on both sides of that.
WARPFUSE_GPU_TEST("half precision scores of every magnitude", "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      const double largest = finfo_max(dtype);
      const at::Tensor normal = random_tensor({4, 1003}, at::kDouble, device);
      for (const double offset : {0.0, 1e3, -1e4, 5e4, -5e4, 65'500.0, 1e6, -1e20, 3e38, -3e38}) {
        for (const double spread : {1.0, 300.0, 20'000.0}) {
          const at::Tensor x = (normal * spread + offset).clamp(-largest, largest).to(dtype);
          INFO(c10::toString(dtype) << ", " << offset << " give or take " << spread);
          const Poison poison;
          CHECK(mismatch(warpfuse::softmax(x, -1), expected_softmax(x, -1)) == "");
          CHECK(mismatch(warpfuse::log_softmax(x, -1), expected_softmax(x, -1, true)) == "");
        }
      }
    }
  });
}

WARPFUSE_GPU_TEST("a planted value reaches its row, and no other", "[edges][portable]") {
  for_all_tiers([&] {
    for (const SoftmaxOperator& op : kSoftmaxOperators) {
      const at::Tensor x = random_at(1, {5, 1001}, at::kHalf, device);
      check_planted(op, x, {0, 6, 7, 8, 500, 993, 999, 1000}, [&] { return op(x, -1); });
    }
  });
}

WARPFUSE_GPU_TEST("rows shorter than a pack, and about as long", "[edges][portable]") {
  for_all_tiers([&] {
    for (const at::ScalarType dtype : kDtypes) {
      for (int64_t keys = 1; keys <= 26; ++keys) {
        for (const RowFunction& function :
             row_functions(1, 9, keys, dtype, device, {.input = keys % 5, .second = keys % 3})) {
          check_row_function(function, plan_of(function));
        }
      }
    }
  });
}
