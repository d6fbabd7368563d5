// scaled_masked_softmax: the rules that hide keys (causal, query_positions, key_lengths, window),
// alone, with the masks, and at their limits.

#include <limits>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();

at::Tensor index_tensor(const std::vector<int64_t>& values, at::IntArrayRef shape,
                        at::ScalarType dtype, const at::Device& device) {
  return at::tensor(values, at::kLong)
      .clamp(dtype == at::kInt ? -2147483648LL : kMin64, dtype == at::kInt ? 2147483647LL : kMax64)
      .to(dtype)
      .view(shape)
      .to(device);
}

/// One value for every mask and rule that can be combined, for scores [2, 3, 5, keys].
std::vector<std::pair<const char*, MaskArguments>> single_rules(int64_t keys, at::ScalarType dtype,
                                                                const at::Device& device) {
  const std::vector<int64_t> positions = {0, 2, -1, 3, keys - 1, keys, 1, -5, 4, keys / 2};
  return {
      {"bool mask", {.attn_mask = random_bool({2, 1, 5, keys}, device)}},
      {"filling mask", {.attn_mask = random_bool({5, keys}, device), .masked_value = -10000.0}},
      {"additive mask", {.attn_mask = random_additive({3, 1, keys}, dtype, device)}},
      {"float32 mask", {.attn_mask = random_additive({2, 1, 1, keys}, at::kFloat, device)}},
      {"upper_left", {.causal = "upper_left"}},
      {"lower_right", {.causal = "lower_right"}},
      {"positions int64", {.query_positions = index_tensor(positions, {2, 5}, at::kLong, device)}},
      {"positions int32", {.query_positions = index_tensor(positions, {2, 5}, at::kInt, device)}},
      {"lengths int64", {.key_lengths = index_tensor({keys - 1, 3}, {2}, at::kLong, device)}},
      {"lengths int32", {.key_lengths = index_tensor({0, keys}, {2}, at::kInt, device)}},
      {"window 1", {.window = 1}},
      {"window 3", {.window = 3}},
  };
}

/// What both say; the second where they speak of the same.
MaskArguments combine(const MaskArguments& a, const MaskArguments& b) {
  MaskArguments both = a;
  if (b.attn_mask) {
    both.attn_mask = b.attn_mask;
    both.masked_value = b.masked_value;
  }
  if (b.causal != "none") {
    both.causal = b.causal;
  }
  if (b.query_positions) {
    both.query_positions = b.query_positions;
  }
  if (b.key_lengths) {
    both.key_lengths = b.key_lengths;
  }
  if (b.window != 0) {
    both.window = b.window;
  }
  return both;
}

}  // namespace

WARPFUSE_DEVICE_TEST("each rule and mask alone, in pairs and in threes", "[masked]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const int64_t keys : {5, 7, 40, 130}) {
      const at::Tensor scores = random_tensor({2, 3, 5, keys}, dtype, device);
      const auto rules = single_rules(keys, dtype, device);
      for (size_t i = 0; i < rules.size(); ++i) {
        for (size_t j = i; j < rules.size(); ++j) {
          for (size_t k = j; k < rules.size(); k += 3) {
            INFO(rules[i].first << " + " << rules[j].first << " + " << rules[k].first);
            check_masked_softmax(
                scores, combine(combine(rules[i].second, rules[j].second), rules[k].second));
          }
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("every dtype with all rules at once", "[masked]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = random_tensor({2, 3, 5, 70}, dtype, device);
    const MaskArguments arguments{
        .scale = 0.25,
        .attn_mask = random_bool({2, 3, 5, 70}, device),
        .causal = "lower_right",
        .query_positions =
            index_tensor({60, 68, 69, 3, 66, 65, 66, 67, 68, 69}, {2, 5}, at::kLong, device),
        .key_lengths = index_tensor({66, 68}, {2}, at::kInt, device),
        .window = 40,
        .masked_value = -5.0};
    check_masked_softmax(scores, arguments);
  }
}

WARPFUSE_DEVICE_TEST("causal scores that are not square", "[masked]") {
  for (const std::string causal : {"upper_left", "lower_right"}) {
    for (const int64_t queries : {1, 2, 7, 33, 64}) {
      for (const int64_t keys : {1, 2, 7, 32, 33, 65, 130}) {
        const at::Tensor scores = random_tensor({1, 2, queries, keys}, at::kFloat, device);
        check_masked_softmax(scores, {.causal = causal});
        for (const int64_t window : {1, 2, 5, 64, 1000}) {
          check_masked_softmax(scores, {.causal = causal, .window = window});
        }
        if (queries == keys) {
          CHECK(aten_mismatch(masked_softmax(scores, {.causal = causal}),
                              aten_masked_softmax(scores, {.causal = causal})) == "");
        }
      }
    }
  }
}

WARPFUSE_DEVICE_TEST("long causal rows", "[masked]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    check_masked_softmax(random_tensor({1, 2, 300, 300}, dtype, device), {.causal = "upper_left"});
    check_masked_softmax(random_tensor({2, 1, 3, 5000}, dtype, device),
                         {.causal = "lower_right", .window = 4097});
  }
}

WARPFUSE_DEVICE_TEST("positions and lengths are clamped", "[masked]") {
  const std::vector<int64_t> extremes = {
      kMin64, kMin64 + 1, -2147483649LL, -2147483648LL, -1,           0,          1,     8,
      9,      10,         2147483647LL,  2147483648LL,  4294967296LL, kMax64 - 1, kMax64};
  const auto count = static_cast<int64_t>(extremes.size());
  for (const at::ScalarType index : {at::kInt, at::kLong}) {
    const at::Tensor scores = random_tensor({count, 2, 1, 9}, at::kFloat, device);
    for (const int64_t window : {int64_t{0}, int64_t{1}, int64_t{3}, kMax64}) {
      const MaskArguments by_position{
          .query_positions = index_tensor(extremes, {count, 1}, index, device), .window = window};
      check_masked_softmax(scores, by_position);
      const MaskArguments by_length{.key_lengths = index_tensor(extremes, {count}, index, device),
                                    .window = window};
      check_masked_softmax(scores, by_length);
      check_masked_softmax(scores, combine(by_position, by_length));
    }
    // A negative position or length sees nothing, one past the keys sees all.
    const at::Tensor by_position = masked_softmax(
        scores, {.query_positions = index_tensor(extremes, {count, 1}, index, device)});
    CHECK(by_position.narrow(0, 0, 5).eq(0).all().item<bool>());
    CHECK(bit_mismatch(by_position.narrow(0, 8, count - 8),
                       masked_softmax(scores, {}).narrow(0, 8, count - 8)) == "");
    const at::Tensor by_length =
        masked_softmax(scores, {.key_lengths = index_tensor(extremes, {count}, index, device)});
    CHECK(by_length.narrow(0, 0, 6).eq(0).all().item<bool>());
    CHECK(bit_mismatch(by_length.narrow(0, 8, count - 8),
                       masked_softmax(scores, {}).narrow(0, 8, count - 8)) == "");
  }
}

WARPFUSE_DEVICE_TEST("positions and lengths of any strides", "[masked]") {
  const at::Tensor scores = random_tensor({3, 2, 4, 20}, at::kFloat, device);
  for (const at::ScalarType index : {at::kInt, at::kLong}) {
    const auto integers = [&](at::IntArrayRef shape) {
      return at::randint(-1, 21, shape, at::kLong).to(index).to(device);
    };
    for (const at::Tensor& positions :
         {integers({4, 3}).t(), integers({3, 9}).slice(1, 1, 9, 2), integers({1, 4}).expand({3, 4}),
          integers({3, 1}).expand({3, 4}), integers({17}).narrow(0, 5, 12).view({3, 4})}) {
      check_masked_softmax(scores, {.query_positions = positions});
    }
    for (const at::Tensor& lengths : {integers({7}).slice(0, 0, 6, 2), integers({1}).expand({3}),
                                      integers({5}).narrow(0, 2, 3)}) {
      check_masked_softmax(scores, {.key_lengths = lengths});
    }
  }
}

WARPFUSE_DEVICE_TEST("rules for scores of lower rank", "[masked]") {
  const at::Tensor three = random_tensor({3, 4, 20}, at::kFloat, device);
  const at::Tensor two = random_tensor({4, 20}, at::kFloat, device);
  const at::Tensor positions = at::randint(0, 20, {3, 4}, at::kLong).to(device);
  check_masked_softmax(three, {.query_positions = positions});
  check_masked_softmax(three, {.causal = "lower_right",
                               .key_lengths = index_tensor({0, 7, 20}, {3}, at::kLong, device)});
  check_masked_softmax(two, {.query_positions = positions.narrow(0, 1, 1)});
  check_masked_softmax(two, {.key_lengths = index_tensor({7}, {1}, at::kInt, device), .window = 5});
}

WARPFUSE_DEVICE_TEST("a window is the query's own key and those before it", "[masked]") {
  const at::Tensor scores = random_tensor({1, 1, 6, 6}, at::kFloat, device);
  const at::Tensor alone = masked_softmax(scores, {.window = 1});
  CHECK(bit_mismatch(alone[0][0], at::eye(6, at::TensorOptions(device))) == "");
  // A window as wide as the keys is upper_left.
  CHECK(bit_mismatch(masked_softmax(scores, {.window = 6}),
                     masked_softmax(scores, {.causal = "upper_left"})) == "");
  // Decoding: one query whose position alone says where it stands.
  const at::Tensor step = random_tensor({2, 1, 1, 10}, at::kFloat, device);
  const at::Tensor output = masked_softmax(
      step, {.query_positions = index_tensor({6, 2}, {2, 1}, at::kLong, device), .window = 4});
  CHECK(
      output.gt(0).to(at::kLong).cpu().view({2, 10}).sum(-1).equal(at::tensor({4, 3}, at::kLong)));
  CHECK(output[0][0][0].narrow(0, 3, 4).gt(0).all().item<bool>());
  CHECK(output[1][0][0].narrow(0, 0, 3).gt(0).all().item<bool>());
}
