// scaled_masked_softmax where the order of work matters: the rows that see most keys come first,
// and blocks of several rows do not divide the queries evenly.

#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_functions.h"

namespace {

/// Rules that differ from query to query: by causality of both kinds, and by positions that are in
/// no order, some before the first key and some past the last.
std::vector<MaskArguments> rules(int64_t batch, int64_t queries, int64_t keys,
                                 const at::Device& device) {
  const at::Tensor positions = at::randint(-1, keys + 2, {batch, queries}, at::kLong).to(device);
  const at::Tensor lengths = at::randint(0, keys + 1, {batch}, at::kInt).to(device);
  return {
      {},
      {.scale = 0.5, .causal = "upper_left"},
      {.causal = "lower_right", .window = 3},
      {.query_positions = positions},
      {.query_positions = positions.to(at::kInt), .key_lengths = lengths, .window = 40},
      {.attn_mask = random_bool({queries, keys}, device), .causal = "lower_right"},
  };
}

void check(at::IntArrayRef shape, at::ScalarType dtype, const at::Device& device) {
  const at::Tensor scores = random_tensor(shape, dtype, device);
  const at::Tensor grad = random_tensor(shape, dtype, device);
  for (const MaskArguments& a : rules(shape[0], shape[2], shape[3], device)) {
    INFO(describe(scores) << ", " << describe(a));
    const Poison poison;  // a row that no block took would be NaN
    const at::Tensor output = masked_softmax(scores, a);
    CHECK(mismatch(output, expected_masked_softmax(scores, a)) == "");
    CHECK(mismatch(masked_softmax_backward(grad, output, a),
                   expected_masked_softmax_backward(grad, output, a)) == "");
  }
}

}  // namespace

WARPFUSE_GPU_TEST("queries that blocks of several rows do not divide", "[order][portable]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    for (const auto& [batch, heads] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 3}, {3, 1}, {2, 5}, {7, 11}}) {
      for (const int64_t queries : {1, 2, 3, 7, 16, 33, 65}) {
        for (const int64_t keys : {1, 5, 33, 64, 257}) {
          check({batch, heads, queries, keys}, dtype, device);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("blocks of each size share out the rows", "[order][portable]") {
  for (const int threads : {32, 64, 128, 256}) {
    const TuningInUse tuning(tuning_with(c10::str("warp ", threads, " 4 1 0")));
    for (const int64_t keys : {1, 20, 100, 250, 500}) {  // 1 to 32 lanes a row
      check({1, 3, 37, keys}, at::kFloat, device);
    }
  }
}

WARPFUSE_GPU_TEST("one row a block, in every tier", "[order][portable]") {
  for (const std::string& run : runs_of_all_tiers()) {
    const TuningInUse tuning(tuning_with(run));
    for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 300}, {37, 300}, {300, 37}, {5, 1000}, {129, 129}}) {
      check({3, 3, queries, keys}, at::kHalf, device);
    }
  }
}

WARPFUSE_GPU_TEST("attention as models have it", "[order][portable]") {
  check({1, 12, 1, 1000}, at::kHalf, device);  // one token more
  check({4, 12, 1, 777}, at::kBFloat16, device);
  check({2, 3, 500, 500}, at::kBFloat16, device);
  check({1, 1, 2000, 2000}, at::kFloat, device);
  check({1, 5, 100, 3000}, at::kHalf, device);  // a chunk of the prompt
  check({1, 1, 3, 40'000}, at::kHalf, device);
}
