// The tier chunk: rows whose keys are hidden, by position or by a mask tensor, of which a chunk
// loads what it needs.

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_engine.h"
#include "support/row_functions.h"

WARPFUSE_GPU_TEST("chunks load what is visible of each row", "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  const TuningInUse both(tuning_with("chunk 96 20 1 0"));
  constexpr int64_t kBatch = 3, kHeads = 2, kQueries = 61;
  const auto longs = at::TensorOptions(device).dtype(at::kLong);
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    // Rows that are loaded as a whole, and from 256 bytes on apart; the longest of a backward.
    for (const int64_t keys : {63, 65, 127, 129, 197, 577, 777, 895}) {
      const at::Tensor positions = at::randint(-1, keys, {kBatch, kQueries}, longs);
      const at::Tensor lengths = at::tensor({int64_t{0}, keys / 3, keys}, longs);
      for (const MaskArguments& arguments : std::initializer_list<MaskArguments>{
               {.scale = 0.5, .causal = "upper_left"},
               {.causal = "lower_right", .window = 9},
               {.query_positions = positions},
               {.query_positions = positions, .key_lengths = lengths, .window = 70},
               {.key_lengths = lengths}}) {
        INFO(keys << " keys, " << dtype << ", causal " << arguments.causal << ", window "
                  << arguments.window);
        const std::vector<int64_t> sizes = {kBatch, kHeads, kQueries, keys};
        at::Tensor scores = random_at(3, sizes, dtype, device);
        scores.masked_fill_(visible_keys(scores, arguments).logical_not(),
                            std::numeric_limits<double>::quiet_NaN());
        const at::Tensor grad = random_at(3, sizes, dtype, device);
        at::Tensor output, grad_scores;
        const Poison poison;
        const nlohmann::json launches = launches_during([&] {
          output = masked_softmax(scores, arguments);
          grad_scores = masked_softmax_backward(grad, output, arguments);
        });
        CHECK(mismatch(output, expected_masked_softmax(scores, arguments)) == "");
        CHECK(mismatch(grad_scores, expected_masked_softmax_backward(grad, output, arguments)) ==
              "");
        REQUIRE(launches.size() == 2);
        CHECK(launches[0]["tier"] == "chunk");
        CHECK(launches[1]["tier"] == "chunk");
      }
    }
  }
}

WARPFUSE_GPU_TEST("chunks copy masks of any strides", "[chunk][portable]") {
  const TuningInUse chunks(tuning_with("chunk 64 40 1 0"));
  constexpr int64_t kBatch = 3, kHeads = 4;
  const auto check = [](const at::Tensor& scores, const MaskArguments& arguments) {
    const Poison poison;
    at::Tensor output;
    const nlohmann::json launches =
        launches_during([&] { output = masked_softmax(scores, arguments); });
    CHECK(mismatch(output, expected_masked_softmax(scores, arguments)) == "");
    REQUIRE(launches.size() == 1);
    CHECK(launches[0]["tier"] == "chunk");
    return launches[0]["shared_bytes"].get<int64_t>();
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t keys : {3, 9, 33, 49, 131}) {
      for (const int64_t queries : {int64_t{1}, keys + 2}) {
        const at::Tensor scores = random_at(1, {kBatch, kHeads, queries, keys}, dtype, device);
        // Runs of all rows, of a batch's, of a head's, and of a row that repeats.
        for (const auto& sizes : broadcast_shapes({kBatch, kHeads, queries, keys})) {
          int64_t boolean_bytes = 0;
          for (const at::Tensor& mask : masks_of_all_kinds(sizes, dtype, device)) {
            INFO(keys << " keys, " << dtype << ", mask " << mask.sizes() << ' ' << mask.dtype());
            const int64_t bytes = check(scores, {.scale = 0.5, .attn_mask = mask});
            if (mask.scalar_type() == at::kBool) {
              boolean_bytes = bytes;
            } else {  // wider elements, of which as many lie in shared memory, in whole packs
              CHECK((boolean_bytes > 0 && bytes + (keys == 3 ? 1 : 0) > boolean_bytes));
            }
            if (mask.dim() > 1) {  // keys that are not neighbours: by element
              const at::Tensor apart = mask.transpose(-1, -2).contiguous().transpose(-1, -2);
              check(scores, {.attn_mask = apart, .causal = "lower_right"});
            }
          }
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("a mask that all heads share is in a chunk once", "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  const TuningInUse both(tuning_with("chunk 96 20 1 0"));
  constexpr int64_t kBatch = 700, kHeads = 9;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    // Chunks of many heads, and of one and a half.
    for (const int64_t keys : {3, 7, 23, 29}) {
      const at::Tensor scores = random_at(1, {kBatch, kHeads, keys, keys}, dtype, device);
      const at::Tensor grad = random_at(1, scores.sizes(), dtype, device);
      for (const at::Tensor& mask : masks_of_all_kinds({keys, keys}, dtype, device)) {
        INFO(keys << " keys, " << dtype << ", mask " << mask.dtype());
        const MaskArguments shared{.scale = 0.5, .attn_mask = mask};
        const MaskArguments own{.scale = 0.5, .attn_mask = mask.expand_as(scores).contiguous()};
        at::Tensor output, grad_scores;
        const Poison poison;
        const nlohmann::json launches = launches_during([&] {
          output = masked_softmax(scores, shared);
          grad_scores = masked_softmax_backward(grad, output, shared);
          masked_softmax(scores, own);
        });
        CHECK(mismatch(output, expected_masked_softmax(scores, shared)) == "");
        CHECK(mismatch(grad_scores, expected_masked_softmax_backward(grad, output, shared)) == "");
        REQUIRE(launches.size() == 3);
        CHECK(launches[0]["tier"] == "chunk");
        CHECK(launches[1]["tier"] == "chunk");
        CHECK(launches[0]["shared_bytes"] < launches[2]["shared_bytes"]);
      }
    }
  }
}

WARPFUSE_GPU_TEST("a mask that the heads of a batch share is in a chunk once or twice",
                  "[chunk][portable]") {
  const TuningInUse forward(tuning_with("chunk 64 40 1 0"));
  const TuningInUse both(tuning_with("chunk 96 20 1 0"));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t keys : {3, 7, 23, 29}) {
      const int64_t heads = 2000 / keys;  // a batch has more rows than a chunk
      const at::Tensor scores = random_at(1, {7, heads, keys, keys}, dtype, device);
      const at::Tensor grad = random_at(1, scores.sizes(), dtype, device);
      for (const at::Tensor& mask : masks_of_all_kinds({7, 1, keys, keys}, dtype, device)) {
        INFO(keys << " keys, " << dtype << ", mask " << mask.dtype());
        const MaskArguments shared{.scale = 0.5, .attn_mask = mask.slice(0, 0, 1)};
        const MaskArguments batches{.scale = 0.5, .attn_mask = mask};
        at::Tensor output, grad_scores;
        const Poison poison;
        const nlohmann::json launches = launches_during([&] {
          masked_softmax(scores, shared);
          output = masked_softmax(scores, batches);
          grad_scores = masked_softmax_backward(grad, output, batches);
        });
        CHECK(mismatch(output, expected_masked_softmax(scores, batches)) == "");
        CHECK(mismatch(grad_scores, expected_masked_softmax_backward(grad, output, batches)) == "");
        REQUIRE(launches.size() == 3);
        CHECK(launches[2]["tier"] == "chunk");
        // Two chunks of a block have one mask more each: its elements and its offset, in packs.
        const int64_t mask_bytes = (keys * keys * mask.element_size() + 15 + 4 + 15) / 16 * 16;
        CHECK(launches[1]["shared_bytes"].get<int64_t>() ==
              launches[0]["shared_bytes"].get<int64_t>() + 2 * mask_bytes);
      }
    }
  }
}

WARPFUSE_GPU_TEST("masks that fill are not for chunks", "[chunk]") {
  const TuningInUse chunks(tuning_with("chunk 64 40 1 0"));
  const at::Tensor scores = random_at(1, {2, 3, 20, 33}, at::kHalf, device);
  const MaskArguments fills{.attn_mask = random_bool({20, 33}, device), .masked_value = -2.0};
  at::Tensor output;
  const nlohmann::json launches = launches_during([&] { output = masked_softmax(scores, fills); });
  CHECK(mismatch(output, expected_masked_softmax(scores, fills)) == "");
  CHECK(launches[0]["tier"] != "chunk");
}
