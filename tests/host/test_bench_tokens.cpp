// The check of drawn and of most probable tokens.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include "bench_variant.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

TEST_CASE("a token that the cuts drop is seen, and one that is none", "[bench]") {
  const auto* shape = GENERATE("3x2x200", "4x1", "5x40");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  const Case c = bench_row("sample_tokens", Direction::forward, shape, dtype);
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
  const Case c = bench_row("sample_tokens", Direction::forward, "3x100", at::kFloat);
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

TEST_CASE("another token than that of the largest logit is seen", "[bench]") {
  const Case c = bench_row("linear_argmax", Direction::forward, "3x20x33", at::kFloat);
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
