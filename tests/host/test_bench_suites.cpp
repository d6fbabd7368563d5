// The check that stands before each timing: what is right passes, what is a little wrong does not.
// ATen's variants are tested, which need no plugin.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/check.h"
#include "bench/suites/attention_inputs.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Case row(const char* op, Direction direction, const char* shape, c10::ScalarType dtype,
         Mask mask = Mask::none) {
  return {find_benchmark(op), direction, parse_shape(shape).value(), dtype, mask};
}

Variant variant(const Case& c, const char* name, const Setup& setup = {.device = at::kCPU}) {
  const std::vector<Variant> all = c.op->variants(c, setup);
  return *std::ranges::find(all, name, &Variant::name);
}

// Of the variant's result, after `change`.
bool passes(const Variant& variant, const std::function<void(Outputs&)>& change) {
  rewind_generators();
  Outputs outputs = variant.call(0);
  change(outputs);
  return variant.error(outputs) <= variant.tolerance;
}

void as_it_is(Outputs&) {}

// Puts a number in place of the last element, or multiplies it.
auto last_is(double value) {
  return [value](Outputs& o) {
    o.result = o.result.clone(at::MemoryFormat::Contiguous);
    o.result.view(-1)[-1] = value;
  };
}
auto last_times(double factor) {
  return [factor](Outputs& o) { o.result = o.result.clone(), o.result.view(-1)[-1] *= factor; };
}

const Run kPlainly = [](const std::function<void()>& action) {
  action();
  return std::optional<int64_t>();
};

}  // namespace

TEST_CASE("ATen's variants pass, and fail with one element off, a NaN or another dtype",
          "[bench]") {
  const auto [op, name, shape] = GENERATE(
      table<const char*, const char*, const char*>({{"softmax", "aten", "9x70x3@1"},
                                                    {"softmax", "aten", "7"},
                                                    {"log_softmax", "aten", "5x33"},
                                                    {"scaled_masked_softmax", "chain", "3x8x11"},
                                                    {"fused_logprob", "aten", "3x4x50"},
                                                    {"fused_logprob_lse", "aten", "3x4x50"},
                                                    {"fused_logprob_entropy", "aten", "12x50"}}));
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(op, name, shape, dtype);
  const Case c = row(op, direction, shape, dtype);
  const Variant tested = variant(c, name);
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, [](Outputs& o) {
    o.result = o.result.clone();
    o.result.view(-1)[-1] += o.result.abs().max() / 2;
  }));
  CHECK_FALSE(passes(tested, last_is(kNan)));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.to(at::kLong); }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.flatten().narrow(0, 0, 6); }));
}

TEST_CASE("attention with dropout is compared with what was drawn, and is zero where hidden",
          "[bench]") {
  const auto mask = GENERATE(Mask::none, Mask::causal, Mask::padding, Mask::boolean, Mask::additive,
                             Mask::positions);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(mask, dtype);
  const Case c = row("scaled_masked_softmax_dropout", Direction::forward, "2x3x8x11", dtype, mask);
  const Variant tested = variant(c, "aten");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result * 0.8; }));
  CHECK_FALSE(passes(tested, [&](Outputs& o) { o = tested.call(0); }));  // drew other numbers
  CHECK_FALSE(
      passes(tested, [](Outputs& o) { o.result = o.result.masked_fill(o.result.eq(0), 1e-3); }));
}

TEST_CASE("float32 is a little more than one rounding for the plugin", "[bench]") {
  const Case c = row("softmax", Direction::forward, "9x70x3@1", at::kFloat);
  Variant plugin = variant(c, "warpfuse");
  plugin.call = variant(c, "aten").call;
  CHECK(passes(plugin, as_it_is));
  CHECK_FALSE(passes(plugin, last_times(1.0001)));
}

TEST_CASE("one element in a later piece of a large tensor is seen", "[bench]") {
  const Variant tested =
      variant(row("softmax", Direction::forward, "40000x1024", at::kFloat), "aten");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, last_times(1.01)));
}

TEST_CASE("hidden keys must be zero", "[bench]") {
  const auto mask = GENERATE(Mask::causal, Mask::padding, Mask::boolean, Mask::positions);
  const auto* shape = GENERATE("2x3x8x11", "3x8x11", "8x11");
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  const Variant tested =
      variant(row("scaled_masked_softmax", direction, shape, at::kFloat, mask), "chain");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, [](Outputs& o) {
    const at::Tensor hidden = o.result.eq(0);
    REQUIRE(hidden.any().item<bool>());
    o.result = o.result.masked_fill(hidden, 1e-20);
  }));
}

TEST_CASE("an additive mask is added to the scaled scores", "[bench]") {
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  const Case c = row("scaled_masked_softmax", direction, "3x8x9", at::kDouble, Mask::additive);
  CHECK(passes(variant(c, "chain"), as_it_is));
}

TEST_CASE("log-probabilities are float32, also of bfloat16 logits", "[bench]") {
  const Case c = row("fused_logprob", Direction::forward, "3x4x50", at::kBFloat16);
  CHECK(variant(c, "warpfuse").tolerance == tolerance_of(at::kFloat, /*of_aten=*/false));
  const Variant loss = variant(c, "cross_entropy");
  CHECK(passes(loss, as_it_is));
  CHECK_FALSE(passes(loss, [](Outputs& o) { o.result = o.result.neg(); }));
  const auto direction = GENERATE(Direction::backward, Direction::both);
  const Variant gradient =
      variant(row("fused_logprob", direction, "12x50", at::kFloat), "cross_entropy");
  CHECK(passes(gradient, as_it_is));
  CHECK_FALSE(passes(gradient, last_times(1.01)));
}

TEST_CASE("the second result of log-probabilities is checked, and its gradient", "[bench]") {
  const auto* op = GENERATE("fused_logprob_lse", "fused_logprob_entropy");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(op, dtype);
  const Variant forward = variant(row(op, Direction::forward, "3x4x50", dtype), "aten");
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.others.at(0) = o.others[0] * 1.3; }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.others.at(0) = o.others[0].flatten(); }));
  const Case c = row(op, Direction::both, "3x4x50", dtype);
  const Variant step = variant(c, "aten");
  CHECK(passes(step, as_it_is));
  // Without the gradient of the second result.
  Outputs first = variant(row("fused_logprob", Direction::both, "3x4x50", dtype), "aten").call(0);
  CHECK_FALSE(step.error(first) <= step.tolerance);
  CHECK(c.op->variants(c, {.device = at::kCPU}).size() == 3);  // no cross_entropy
}

TEST_CASE("a token that the cuts drop is seen, and one that is none", "[bench]") {
  const auto* shape = GENERATE("3x2x200", "4x1", "5x40");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  const Case c = row("sample_tokens", Direction::forward, shape, dtype);
  const Setup setup{.device = at::kCPU, .scores = [](const at::Tensor& x) { x.normal_(0, 2); }};
  CAPTURE(shape, dtype);
  const Variant tested = variant(c, "aten", setup);
  for (int i = 0; i < 20; ++i) {
    CHECK(passes(tested, as_it_is));
  }
  for (const int64_t wrong : {int64_t{-1}, int64_t{-2}, c.shape.columns()}) {
    CHECK_FALSE(passes(tested, last_is(static_cast<double>(wrong))));
  }
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.to(at::kInt); }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.view(-1).narrow(0, 1, 1); }));
}

TEST_CASE("tokens below top_k, behind top_p, and of rows with NaN", "[bench]") {
  const Case c = row("sample_tokens", Direction::forward, "3x100", at::kFloat);
  // Row 0 falls slowly: top_k keeps 50, and top_p cuts these. Row 1 has one likely token.
  const Setup setup{.device = at::kCPU, .scores = [](const at::Tensor& x) {
                      x[0].copy_(at::arange(100).mul(-0.01));
                      x[1].zero_()[7] = 100;
                      x[2].fill_(kNan);
                    }};
  const auto right = [&](const char* name, int64_t first, int64_t second, int64_t third) {
    const Variant tested = variant(c, name, setup);
    return tested.error(at::tensor({first, second, third}, at::kLong)) <= tested.tolerance;
  };
  CHECK(right("warpfuse", 0, 7, -1));
  CHECK(right("warpfuse", 46, 7, -1));
  CHECK_FALSE(right("warpfuse", 48, 7, -1));  // behind 95 %
  CHECK_FALSE(right("warpfuse", 50, 7, -1));  // below the 50th
  CHECK_FALSE(right("warpfuse", 0, 8, -1));
  CHECK_FALSE(right("warpfuse", 0, 7, 0));
  CHECK_FALSE(right("warpfuse", -1, 7, -1));
  CHECK(right("aten", 0, 7, 0));
  // Equal logits are all within top_k.
  const Setup equal{.device = at::kCPU, .scores = [](const at::Tensor& x) { x.zero_(); }};
  const Variant tested = variant(c, "warpfuse", equal);
  CHECK(tested.error(at::tensor({0, 60, 99}, at::kLong)) <= tested.tolerance);
}

TEST_CASE("dropout is compared with what was drawn", "[bench]") {
  const auto* op = GENERATE("dropout_softmax", "softmax_dropout");
  const Case c = row(op, Direction::forward, "9x70", at::kFloat);
  const Variant tested = variant(c, "aten");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result * 0.8; }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.roll(1, -1); }));
  CHECK_FALSE(passes(tested, [&](Outputs& o) { o = tested.call(0); }));  // drew other numbers
}

TEST_CASE("each result of a linear with dropout and softmax is checked", "[bench]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const auto* name = GENERATE("aten", "linear");
  const Variant forward =
      variant(row("linear_dropout_softmax", Direction::forward, "12x20x33", dtype), name);
  CHECK(passes(forward, as_it_is));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result * 1.3; }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result.t(); }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result.to(at::kHalf); }));
  CHECK_FALSE(passes(forward, last_is(kNan)));

  const Variant step =
      variant(row("linear_dropout_softmax", Direction::both, "12x20x33", dtype), name);
  CHECK(passes(step, as_it_is));
  CHECK_FALSE(passes(step, [](Outputs& o) { o.result = o.result.neg(); }));
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK_FALSE(passes(step, [i](Outputs& o) { o.others.at(i) = o.others[i].neg(); }));
  }
  const auto sizes = int64_t{33} * 20 + int64_t{12} * 20 + 33 + int64_t{12} * 33;
  CHECK(step.call(0).bytes() == sizes * static_cast<int64_t>(c10::elementSize(dtype)));
}

TEST_CASE("each result of ms_deform_attn is checked", "[bench]") {
  // Queries near objects, of pixels, on a raster.
  const auto* shape = GENERATE("2x5x3x7x2/6x4/3x5", "1x39x2x8x3/6x4/3x5", "1x1100x1x4x1/9x13");
  const auto* op = GENERATE("ms_deform_attn", "ms_deform_attn_uniform");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(op, shape, dtype);
  const Variant forward = variant(row(op, Direction::forward, shape, dtype), "aten");
  CHECK(passes(forward, as_it_is));
  CHECK_FALSE(passes(forward, last_is(kNan)));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result * 1.3; }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result.roll(1, -1); }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result.to(at::kLong); }));
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.result = o.result.flatten(); }));

  const Variant backward = variant(row(op, Direction::backward, shape, dtype), "aten");
  CHECK(passes(backward, as_it_is));
  CHECK_FALSE(passes(backward, [](Outputs& o) { o.result = o.result * 1.3; }));
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    CHECK_FALSE(passes(backward, [i](Outputs& o) { o.others.at(i) = o.others[i] * 1.3; }));
  }
}

TEST_CASE("the parts of a decode step are checked", "[bench]") {
  const auto* op = GENERATE("norm_linear", "norm_linear_gelu", "linear_residual");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16);
  CAPTURE(op, dtype);
  const Variant tested = variant(row(op, Direction::forward, "3x20x33", dtype), "aten");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, last_is(kNan)));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result * 1.3; }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.t(); }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.to(at::kDouble); }));
}

TEST_CASE("another token than that of the largest logit is seen", "[bench]") {
  const Case c = row("linear_argmax", Direction::forward, "3x20x33", at::kFloat);
  const Variant tested = variant(c, "aten");
  CHECK(passes(tested, as_it_is));
  for (const int64_t wrong : {-1, -2, 33}) {
    CHECK_FALSE(passes(tested, last_is(static_cast<double>(wrong))));
  }
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = (o.result + 1) % 33; }));
  // A row with a NaN has no largest one, which is -1 for the plugin.
  const Setup special{.device = at::kCPU,
                      .scores = [](const at::Tensor& x) { x.normal_().view({-1})[0] = kNan; }};
  const Variant plugin = variant(c, "warpfuse", special);
  const Outputs tokens = variant(c, "aten", special).call(0);
  CHECK_FALSE(plugin.error(tokens) <= plugin.tolerance);
  CHECK(variant(c, "aten", special).error(tokens) <= plugin.tolerance);
  tokens.result[0] = -1;
  CHECK(plugin.error(tokens) <= plugin.tolerance);
}

TEST_CASE("attention over a cache is checked, and what it wrote", "[bench]") {
  const auto* shape = GENERATE("2x3x1x9x8", "2x3x6x6x8", "3x2x4x9x8");
  const auto mask = GENERATE(Mask::none, Mask::positions);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16);
  CAPTURE(shape, dtype);
  const Case c = row("cached_attention_softmax", Direction::forward, shape, dtype, mask);
  const std::vector<Variant> all = c.op->variants(c, {.device = at::kCPU});
  const Variant& alone = all[2];
  CHECK_FALSE(passes(alone, as_it_is));  // the cache lacks the new keys and values
  CHECK(passes(all[1], as_it_is));
  CHECK(passes(alone, as_it_is));
  CHECK_FALSE(passes(alone, last_is(kNan)));
  CHECK_FALSE(passes(alone, [](Outputs& o) { o.result = o.result * 1.3; }));
  CHECK_FALSE(passes(alone, [](Outputs& o) { o.result = o.result.to(at::kDouble); }));
}

TEST_CASE("rows of NaN and infinity, of one column and without elements are checked", "[bench]") {
  const auto* op = GENERATE("softmax", "log_softmax", "dropout_softmax", "scaled_masked_softmax");
  const Shape shape = GENERATE(Shape{{4, 9}}, Shape{{4, 1}}, Shape{{0, 9}});
  CAPTURE(op, shape.text());
  const Case c{find_benchmark(op), Direction::forward, shape, at::kFloat, Mask::none};
  const Setup special{.device = at::kCPU, .scores = [](const at::Tensor& scores) {
                        scores.normal_();
                        if (scores.numel() > 0) {
                          scores[0].fill_(kNan);
                          scores[1].fill_(-std::numeric_limits<double>::infinity());
                          scores[2][0] = std::numeric_limits<double>::infinity();
                        }
                      }};
  const char* name = c.op->masks.empty() ? "aten" : "chain";
  CHECK(check(variant(c, name, special), kPlainly).status == Checked::Status::ok);
}

TEST_CASE("input sets differ, are aligned and come again", "[bench]") {
  const Case c = row("softmax", Direction::forward, "3x7", at::kHalf);
  const auto all_sets = [&] {
    std::vector<at::Tensor> scores;
    const Setup setup{.device = at::kCPU, .sets = 3, .scores = [&](const at::Tensor& tensor) {
                        scores.push_back(tensor.normal_());
                      }};
    c.op->variants(c, setup);
    return scores;
  };
  const std::vector<at::Tensor> first = all_sets(), again = all_sets();
  REQUIRE(first.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(first[i].equal(again[i]));
    CHECK(reinterpret_cast<uintptr_t>(first[i].const_data_ptr()) % 64 == 0);
    CHECK_FALSE(first[i].equal(first[(i + 1) % 3]));
  }
}

TEST_CASE("a check sees what is not written, and leaves inputs as they were", "[bench]") {
  const at::Tensor input = at::ones({4});
  Variant variant{.name = "in_place",
                  .kind = Variant::Kind::aten,
                  .call = [&](int64_t) -> Outputs { return input.mul_(3); },
                  .error =
                      [&](const Outputs& o) {
                        CHECK(input.eq(1).all().item<bool>());
                        return (o.result - 3).abs().max().item<double>();
                      },
                  .tolerance = 0,
                  .overwritten = input};
  CHECK(check(variant, kPlainly).status == Checked::Status::ok);

  const at::Tensor memory = at::zeros({4});
  variant.overwritten = at::Tensor();
  variant.call = [&](int64_t) -> Outputs {
    memory.narrow(0, 0, 3).fill_(3);
    return memory;
  };
  const Checked unwritten = check(variant, kPlainly);
  CHECK(unwritten.status == Checked::Status::wrong);
  CHECK(unwritten.reason.ends_with("nan where 0 is allowed"));
  variant.call = [](int64_t) -> Outputs { TORCH_CHECK(false, "not for\nme"); };
  CHECK(check(variant, kPlainly).status == Checked::Status::unsupported);
  variant.kind = Variant::Kind::plugin;
  CHECK(check(variant, kPlainly).status == Checked::Status::wrong);
  CHECK(check(variant, kPlainly).reason == "not for");
}

TEST_CASE("bytes of a row, against sums by hand", "[bench]") {
  const auto least = [](const char* op, Direction direction, const char* shape, Mask mask) {
    const Case c = row(op, direction, shape, at::kBFloat16, mask);
    const Bytes bytes = c.op->bytes(c);
    CHECK(bytes.fused >= bytes.least);
    CHECK(bytes.unfused >= bytes.fused);
    return bytes.least;
  };
  using enum Direction;
  const char* masked = "scaled_masked_softmax";
  CHECK(least("softmax", forward, "1024x8192", Mask::none) == int64_t{2} * 2 * 1024 * 8192);
  CHECK(least("softmax", backward, "10x7@0", Mask::none) == int64_t{2} * 3 * 70);
  // 3 heads, 4 queries, 6 keys: 1 + 2 + 3 + 4 = 10 of 24 scores per head.
  CHECK(least(masked, forward, "3x4x6", Mask::causal) == int64_t{2} * (30 + 72));
  CHECK(least(masked, backward, "3x4x6", Mask::causal) == int64_t{2} * (60 + 72));
  CHECK(least(masked, forward, "3x2", Mask::causal) == int64_t{2} * (5 + 6));  // 1 + 2 + 2 of 6
  CHECK(least(masked, forward, "3x4x6", Mask::boolean) == int64_t{2} * 2 * 72 + 24);
  CHECK(least(masked, forward, "3x4x6", Mask::additive) == int64_t{2} * 2 * 72 + 48);
  CHECK(least(masked, backward, "3x4x6", Mask::additive) == int64_t{2} * 3 * 72);
  CHECK(least(masked, forward, "2x7x3x5", Mask::positions) == int64_t{2} * (14 * 12 + 210) + 48);
  const int64_t rows = int64_t{6} * (12 + 20 + 8);
  CHECK(least("fused_logprob", both, "2x3x7", Mask::none) == int64_t{2} * 3 * 42 + rows);
  CHECK(least("fused_logprob_lse", both, "2x3x7", Mask::none) == int64_t{2} * 126 + rows + 48);
  CHECK(least("fused_logprob_entropy", backward, "2x3x7", Mask::none) ==
        int64_t{2} * 84 + int64_t{6} * 28);
  CHECK(least("sample_tokens", forward, "2x3x7", Mask::none) == int64_t{2} * 42 + 48);
  const char* dropped = "scaled_masked_softmax_dropout";
  CHECK(least(dropped, forward, "3x4x6", Mask::causal) == int64_t{2} * (30 + 72));
  CHECK(least(dropped, backward, "3x4x6", Mask::causal) ==
        int64_t{2} * (60 + 72) + int64_t{12} * 8);
  CHECK(least(dropped, backward, "3x4x6", Mask::additive) ==
        int64_t{2} * (3 * 72 + 24) + int64_t{12} * 8);
  CHECK(least("softmax_dropout", backward, "10x7", Mask::none) == int64_t{4} * (105 + 20));
  // 3 rows of 5 features to 7: operands of 15 and 35, a bias of 7, results of 21.
  CHECK(least("linear_dropout_softmax", both, "3x5x7", Mask::none) == int64_t{2} * (150 + 14 + 63));
  // The same and two vectors of a norm; a residual; tokens in place of results.
  CHECK(least("norm_linear", forward, "3x5x7", Mask::none) == int64_t{2} * (57 + 10 + 21));
  CHECK(least("linear_residual", forward, "3x5x7", Mask::none) == int64_t{2} * (57 + 2 * 21));
  CHECK(least("linear_argmax", forward, "3x5x7", Mask::none) == 2 * (57 + 10) + 24);
  // 2 tokens of 24 channels: 6 tensors of theirs, and two of the 8 slots before each.
  const char* step = "2x3x1x9x8";
  CHECK(least("cached_attention_softmax", forward, step, Mask::none) == 48 * (12 + 32) + 16);
  CHECK(least("cached_attention_softmax", forward, step, Mask::positions) == 48 * (12 + 16) + 16);
  // Levels of 39 pixels with 2 heads of 8 channels; 5 queries of 3 points on each.
  const int64_t value = int64_t{39} * 16 * 2, points = int64_t{60} * 12, output = int64_t{80} * 2;
  const char* levels = "1x5x2x8x3/6x4/3x5";
  CHECK(least("ms_deform_attn", forward, levels, Mask::none) == value + points + output);
  CHECK(least("ms_deform_attn", backward, levels, Mask::none) == 2 * (value + points) + output);
  // 4 points, of 4 pixels each.
  CHECK(least("ms_deform_attn", forward, "1x1x2x8x1/6x4/3x5", Mask::none) == 256 + 48 + 32);
}

TEST_CASE("bytes of linear layers fused after a matmul and unfused, against sums by hand",
          "[bench]") {
  using Moved = std::pair<int64_t, int64_t>;
  const auto moved = [](const char* op, Direction direction) {
    const Case c = row(op, direction, "3x5x7", at::kBFloat16);
    const Bytes bytes = c.op->bytes(c);
    return Moved(bytes.fused, bytes.unfused);
  };
  using enum Direction;
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
  const Case c =
      row("scaled_masked_softmax", Direction::forward, "5x3x4x100", at::kBFloat16, Mask::padding);
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
