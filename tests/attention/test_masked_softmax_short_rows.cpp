// Rows of up to 15 keys on the CPU: blocks of them are transposed, each lane of a vector has a row.

#include "support/compare.h"
#include "support/dropout.h"
#include "support/dropout_checks.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/operators.h"
#include "support/pch.h"
#include "support/poison.h"

namespace {

constexpr double kP = 0.3;

// 195 rows: whole blocks of any vector, and a rest; blocks that begin amid heads and batches.
constexpr int64_t kBatch = 3, kHeads = 5, kQueries = 13;

std::vector<MaskArguments> short_rules(int64_t keys, at::ScalarType dtype) {
  const at::Device device(at::kCPU);
  return {
      {.scale = 0.7},
      {.scale = -0.3, .causal = "upper_left"},
      {.causal = "lower_right", .window = 2},
      {.attn_mask = random_bool({kBatch, 1, kQueries, keys}, device)},
      {.attn_mask = random_bool({keys, kQueries}, device).t(), .causal = "lower_right"},
      {.scale = 2.0,
       .attn_mask = random_bool({kHeads, 1, keys}, device),
       .window = 3,
       .masked_value = -0.5},
      {.attn_mask = random_bool({kQueries, 1}, device), .masked_value = -kInf},
      {.scale = 0.5, .attn_mask = random_additive({kHeads, kQueries, keys}, dtype, device)},
      {.attn_mask = random_additive({kBatch, 1, 1, keys}, at::kFloat, device),
       .causal = "upper_left"},
      {.query_positions = at::randint(-1, keys, {kBatch, kQueries}, at::kLong)},
      {.key_lengths = at::randint(0, keys + 1, {kBatch}, at::kInt)},
  };
}

bool is_zero(const at::Tensor& tensor) { return tensor.eq(0).all().item<bool>(); }

}  // namespace

TEST_CASE("blocks of short masked rows are transposed", "[masked][dropout][cpu_paths]") {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t keys : {1, 2, 3, 7, 8, 15, 16}) {
      for (const MaskArguments& arguments : short_rules(keys, dtype)) {
        const at::Tensor scores = random_tensor({kBatch, kHeads, kQueries, keys}, dtype);
        const at::Tensor grad = random_tensor({kBatch, kHeads, kQueries, keys}, dtype);
        const CounterDelta transposed("cpu.masked_transposed"), by_row("cpu.masked_rows");
        check_masked_softmax(scores, arguments);
        const at::Tensor output = masked_softmax(scores, arguments);
        CHECK(mismatch(masked_softmax_backward(grad, output, arguments),
                       expected_masked_softmax_backward(grad, output, arguments)) == "");
        check_masked_dropout(scores, arguments, kP);
        const bool boolean = arguments.attn_mask && arguments.attn_mask->scalar_type() == at::kBool;
        const int backward = keys <= (boolean ? 15 : 7) ? 1 : 0;
        CHECK(transposed() == (keys <= 15 ? 4 : 0) + backward);
        CHECK(by_row() == (keys <= 15 ? 0 : 4) + 1 - backward);
      }
    }
  }
}

TEST_CASE("any number of short masked rows, wherever they start", "[masked][cpu_paths]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor memory = random_tensor({4000}, dtype);
    const at::Tensor masks = random_bool({4000}, at::kCPU);
    for (const int64_t rows : {1, 7, 32, 33, 64, 65, 127, 129, 256}) {
      for (const int64_t first : {0, 1, 3}) {
        const auto part = [&](const at::Tensor& all, int64_t from) {
          return all.narrow(0, from, rows * 15).view({rows, 15});
        };
        const MaskArguments arguments{.attn_mask = part(masks, 3 - first)};
        const CounterDelta transposed("cpu.masked_transposed");
        check_masked_softmax(part(memory, first), arguments);
        check_masked_softmax(part(memory, first).slice(1, 2, 15, 3), {.scale = 0.5});
        CHECK(transposed() == 2);
      }
    }
  }
}

TEST_CASE("a short masked row with NaN or infinities leaves its neighbours alone",
          "[masked][dropout][cpu_paths]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor clean = random_tensor({kBatch, kHeads, kQueries, 4}, dtype);
    const at::Tensor ones = at::ones_like(clean);
    const at::Tensor planted = at::zeros_like(clean, at::kBool);
    planted.view({-1, 4}).slice(0, 1, at::nullopt, 3).select(1, 2).fill_(true);
    for (const MaskArguments& arguments : short_rules(4, dtype)) {
      const at::Tensor hidden = visible_keys(clean, arguments).logical_not();
      const at::Tensor untouched = planted.logical_and(~hidden).any(-1, true).logical_not();
      const auto [dropped, rows, rng] = masked_dropout(clean, arguments, kP);
      for (const double value : {kNaN, kInf, -kInf}) {
        INFO(c10::toString(dtype) << ", " << value << ", " << describe(arguments));
        const at::Tensor scores = clean.masked_fill(planted, value);
        check_masked_softmax(scores, arguments);
        const at::Tensor output = masked_softmax(scores, arguments);
        const at::Tensor gradient =
            masked_softmax_backward(ones.masked_fill(hidden, kNaN), output, arguments);
        const auto [got, statistics, used] = masked_dropout(scores, arguments, kP, rng);
        const at::Tensor dropped_gradient = masked_dropout_backward(
            ones.masked_fill(hidden, kNaN), scores, statistics, rng, arguments, kP);
        for (const at::Tensor& result : {output, gradient, got, dropped_gradient}) {
          CHECK(is_zero(result.masked_select(hidden)));
        }
        CHECK(bit_mismatch(got.masked_select(untouched), dropped.masked_select(untouched)) == "");
        CHECK(bit_mismatch(output.masked_select(untouched),
                           masked_softmax(clean, arguments).masked_select(untouched)) == "");
      }
    }
  }
}

TEST_CASE("short rows without a key among others", "[masked][dropout][cpu_paths]") {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor scores = random_tensor({200, 5}, dtype).fill_diagonal_(kNaN);
    const at::Tensor closed = at::rand({200, 1}).lt(0.5);
    for (const MaskArguments& arguments : {
             MaskArguments{.attn_mask = closed.logical_not().expand({200, 5})},
             MaskArguments{.attn_mask = at::zeros({200, 5}, dtype).masked_fill(closed, -kInf)},
             MaskArguments{.attn_mask = at::zeros({200, 5}).masked_fill(closed, -kInf)},
             MaskArguments{.query_positions = at::where(closed, -1, 4).view({1, 200})},
         }) {
      INFO(c10::toString(dtype) << ", " << describe(arguments));
      const CounterDelta transposed("cpu.masked_transposed");
      const Poison poison;
      const at::Tensor output = masked_softmax(scores, arguments);
      const at::Tensor grad = at::full_like(scores, kInf);
      const auto [dropped, statistics, rng] = masked_dropout(scores, arguments, kP);
      for (const at::Tensor& result :
           {output, masked_softmax_backward(grad, output, arguments), dropped,
            masked_dropout_backward(grad, scores, statistics, rng, arguments, kP)}) {
        CHECK(is_zero(result.masked_select(closed)));
      }
      CHECK(transposed() == 4);
      CHECK(output.ne(0).any(-1, true).equal(~closed));
      CHECK(statistics.select(-1, 0).eq(kInf).equal(closed.view({200})));
      CHECK(is_zero(statistics.select(-1, 1).masked_select(closed.view({200}))));
    }
  }
}
