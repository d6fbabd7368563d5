// Bytes that a row moves, against sums by hand.

#include <algorithm>
#include <utility>

#include "bench/suites/attention_inputs.h"
#include "bench_variant.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;
using enum Direction;

TEST_CASE("bytes of a row", "[bench]") {
  const auto least = [](const char* op, Direction direction, const char* shape,
                        Mask mask = Mask::none) {
    const Case c = bench_row(op, direction, shape, at::kBFloat16, mask);
    const Bytes bytes = c.op->bytes(c);
    CHECK(bytes.fused >= bytes.least);
    CHECK(bytes.unfused >= bytes.fused);
    return bytes.least;
  };
  const char* masked = "scaled_masked_softmax";
  CHECK(least("softmax", forward, "1024x8192") == int64_t{2} * 2 * 1024 * 8192);
  CHECK(least("softmax", backward, "10x7@0") == int64_t{2} * 3 * 70);
  // 3 heads, 4 queries, 6 keys: 1 + 2 + 3 + 4 = 10 of 24 scores per head.
  CHECK(least(masked, forward, "3x4x6", Mask::causal) == int64_t{2} * (30 + 72));
  CHECK(least(masked, backward, "3x4x6", Mask::causal) == int64_t{2} * (60 + 72));
  CHECK(least(masked, forward, "3x2", Mask::causal) == int64_t{2} * (5 + 6));  // 1 + 2 + 2 of 6
  CHECK(least(masked, forward, "3x4x6", Mask::boolean) == int64_t{2} * 2 * 72 + 24);
  CHECK(least(masked, forward, "3x4x6", Mask::additive) == int64_t{2} * 2 * 72 + 48);
  CHECK(least(masked, backward, "3x4x6", Mask::additive) == int64_t{2} * 3 * 72);
  CHECK(least(masked, forward, "2x7x3x5", Mask::positions) == int64_t{2} * (14 * 12 + 210) + 48);
  const int64_t rows = int64_t{6} * (12 + 20 + 8);
  CHECK(least("fused_logprob", both, "2x3x7") == int64_t{2} * 3 * 42 + rows);
  CHECK(least("fused_logprob_lse", both, "2x3x7") == int64_t{2} * 126 + rows + 48);
  CHECK(least("fused_logprob_entropy", backward, "2x3x7") == int64_t{2} * 84 + int64_t{6} * 28);
  CHECK(least("sample_tokens", forward, "2x3x7") == int64_t{2} * 42 + 48);
  const char* dropped = "scaled_masked_softmax_dropout";
  CHECK(least(dropped, forward, "3x4x6", Mask::causal) == int64_t{2} * (30 + 72));
  CHECK(least(dropped, backward, "3x4x6", Mask::causal) ==
        int64_t{2} * (60 + 72) + int64_t{12} * 8);
  CHECK(least(dropped, backward, "3x4x6", Mask::additive) ==
        int64_t{2} * (3 * 72 + 24) + int64_t{12} * 8);
  CHECK(least("softmax_dropout", backward, "10x7") == int64_t{4} * (105 + 20));
  // 3 rows of 5 features to 7: operands of 15 and 35, a bias of 7, results of 21.
  CHECK(least("linear_dropout_softmax", both, "3x5x7") == int64_t{2} * (150 + 14 + 63));
  // The same and two vectors of a norm; a residual; tokens in place of results.
  CHECK(least("norm_linear", forward, "3x5x7") == int64_t{2} * (57 + 10 + 21));
  CHECK(least("linear_residual", forward, "3x5x7") == int64_t{2} * (57 + 2 * 21));
  CHECK(least("linear_argmax", forward, "3x5x7") == 2 * (57 + 10) + 24);
  // 2 tokens of 24 channels: 6 tensors of theirs, and two of the 8 slots before each.
  const char* step = "2x3x1x9x8";
  CHECK(least("cached_attention_softmax", forward, step) == 48 * (12 + 32) + 16);
  CHECK(least("cached_attention_softmax", forward, step, Mask::positions) == 48 * (12 + 16) + 16);
  // Levels of 39 pixels with 2 heads of 8 channels; 5 queries of 3 points on each.
  const int64_t value = int64_t{39} * 16 * 2, points = int64_t{60} * 12, output = int64_t{80} * 2;
  const char* levels = "1x5x2x8x3/6x4/3x5";
  CHECK(least("ms_deform_attn", forward, levels) == value + points + output);
  CHECK(least("ms_deform_attn", backward, levels) == 2 * (value + points) + output);
  // 4 points, of 4 pixels each.
  CHECK(least("ms_deform_attn", forward, "1x1x2x8x1/6x4/3x5") == 256 + 48 + 32);
}

TEST_CASE("bytes of linear layers fused after a matmul and unfused", "[bench]") {
  using Moved = std::pair<int64_t, int64_t>;
  const auto moved = [](const char* op, Direction direction) {
    const Case c = bench_row(op, direction, "3x5x7", at::kBFloat16);
    const Bytes bytes = c.op->bytes(c);
    return Moved(bytes.fused, bytes.unfused);
  };
  // Operands of 15 and 35, a bias of 7, results of 21 and their mask of 1 byte each.
  const int64_t rows = 15, operands = 50, bias = 7, results = 21, inputs = operands + bias;
  const int64_t norm_vectors = 10, tokens = 24;
  const Moved dropout = moved("linear_dropout_softmax", forward);
  CHECK(dropout == Moved(2 * (inputs + 3 * results), 2 * (inputs + 5 * results) + results));
  const int64_t backward_inputs = 2 * operands + bias;
  CHECK(moved("linear_dropout_softmax", both) ==
        Moved(dropout.first + 2 * (backward_inputs + 6 * results),
              dropout.second + 2 * (backward_inputs + 11 * results) + results));
  // A pass over the rows for the norm, and one over results for activation, sum or largest.
  const int64_t norm_inputs = 2 * (inputs + norm_vectors), norm = norm_inputs + 2 * results;
  const int64_t residual = 2 * (inputs + 2 * results), argmax = norm_inputs + tokens;
  const int64_t norm_pass = 4 * rows, pass = 4 * results;
  CHECK(moved("norm_linear", forward) == Moved(norm, norm + norm_pass));
  CHECK(moved("norm_linear_gelu", forward) == Moved(norm, norm + norm_pass + pass));
  CHECK(moved("linear_residual", forward) == Moved(residual, residual + pass));
  CHECK(moved("linear_argmax", forward) == Moved(argmax, argmax + norm_pass + pass));
}

TEST_CASE("padding reads the keys within the lengths, which are always the same", "[bench]") {
  const Case c = bench_row("scaled_masked_softmax", Direction::forward, "5x3x4x100", at::kBFloat16,
                           Mask::padding);
  const std::vector<int64_t> lengths = key_lengths_of(c.shape);
  REQUIRE(lengths.size() == 5);
  CHECK(key_lengths_of(c.shape) == lengths);
  CHECK(std::ranges::min(lengths) >= 1);
  CHECK(std::ranges::max(lengths) <= 100);
  int64_t keys = 0;
  for (const int64_t length : lengths) {
    keys += length;
  }
  CHECK(keys < 500);  // some key is hidden
  CHECK(c.op->bytes(c).least == 2 * (12 * keys + 6000) + 40);
}
