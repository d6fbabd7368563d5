// The check that stands before each timing: what is right passes, what is a little wrong does not.
// ATen's variants are tested, which need no plugin.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <limits>
#include <utility>

#include "bench/check.h"
#include "bench/suites/attention_inputs.h"
#include "bench_variant.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

// Multiplies the last element.
auto last_times(double factor) {
  return [factor](Outputs& o) { o.result = o.result.clone(), o.result.view(-1)[-1] *= factor; };
}

// Fails where one of the results is faulty.
void check_faults(const Variant& tested, Direction direction) {
  CHECK(passes(tested, as_it_is));
  const double factor = direction == Direction::both ? -1 : 1.3;
  CHECK_FALSE(passes(tested, [&](Outputs& o) { o.result = o.result * factor; }));
  CHECK_FALSE(passes(tested, last_is(kNan)));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.roll(1, -1); }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.to(at::kLong); }));
  CHECK_FALSE(passes(tested, [](Outputs& o) { o.result = o.result.flatten().narrow(0, 0, 6); }));
  for (size_t i = 0; i < tested.call(0).others.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(passes(tested, [&](Outputs& o) { o.others[i] = o.others[i] * factor; }));
  }
}

const Run kPlainly = [](const std::function<void()>& action) {
  action();
  return std::optional<int64_t>();
};

}  // namespace

TEST_CASE("ATen's variants pass, and fail with a fault in a result", "[bench]") {
  struct Tested {
    const char *op, *name, *shape;
    Direction other = Direction::backward;  // than forward
  };
  const auto tested =
      GENERATE(values<Tested>({{"softmax", "aten", "9x70x3@1"},
                               {"softmax", "aten", "7"},
                               {"log_softmax", "aten", "5x33"},
                               {"scaled_masked_softmax", "chain", "3x8x11"},
                               {"fused_logprob", "aten", "3x4x50"},
                               {"fused_logprob", "cross_entropy", "3x4x50"},
                               {"fused_logprob", "cross_entropy", "12x50", Direction::both},
                               {"fused_logprob_lse", "aten", "3x4x50"},
                               {"fused_logprob_lse", "aten", "3x4x50", Direction::both},
                               {"fused_logprob_entropy", "aten", "12x50"},
                               {"fused_logprob_entropy", "aten", "3x4x50", Direction::both},
                               {"linear_dropout_softmax", "aten", "12x20x33", Direction::both},
                               {"linear_dropout_softmax", "linear", "12x20x33", Direction::both},
                               // Queries near objects, of pixels, on a raster.
                               {"ms_deform_attn", "aten", "2x5x3x7x2/6x4/3x5"},
                               {"ms_deform_attn", "aten", "1x39x2x8x3/6x4/3x5"},
                               {"ms_deform_attn", "aten", "1x1100x1x4x1/9x13"},
                               {"ms_deform_attn_uniform", "aten", "1x39x2x8x3/6x4/3x5"},
                               {"norm_linear", "aten", "3x20x33", Direction::forward},
                               {"norm_linear_gelu", "aten", "3x20x33", Direction::forward},
                               {"linear_residual", "aten", "3x20x33", Direction::forward}}));
  const auto direction = GENERATE_COPY(Direction::forward, tested.other);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(tested.op, tested.name, tested.shape, direction, dtype);
  const Case c = bench_row(tested.op, direction, tested.shape, dtype);
  if (c.op->float64 || dtype != at::kDouble) {
    check_faults(variant(c, tested.name), direction);
  }
}

TEST_CASE("dropout is compared with what was drawn, and is zero where hidden", "[bench]") {
  const auto mask = GENERATE(Mask::none, Mask::causal, Mask::padding, Mask::boolean, Mask::additive,
                             Mask::positions);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(mask, dtype);
  const auto check_drawn = [&](const char* op, const char* shape, Mask given) {
    const Variant tested = variant(bench_row(op, Direction::forward, shape, dtype, given), "aten");
    check_faults(tested, Direction::forward);
    CHECK_FALSE(passes(tested, [&](Outputs& o) { o = tested.call(0); }));  // drew other numbers
    return tested;
  };
  const Variant masked = check_drawn("scaled_masked_softmax_dropout", "2x3x8x11", mask);
  CHECK_FALSE(
      passes(masked, [](Outputs& o) { o.result = o.result.masked_fill(o.result.eq(0), 1e-3); }));
  if (mask == Mask::none) {
    check_drawn("dropout_softmax", "9x70", mask);
    check_drawn("softmax_dropout", "9x70", mask);
  }
}

TEST_CASE("float32 is a little more than one rounding for the plugin", "[bench]") {
  const Case c = bench_row("softmax", Direction::forward, "9x70x3@1", at::kFloat);
  Variant plugin = variant(c, "warpfuse");
  plugin.call = variant(c, "aten").call;
  CHECK(passes(plugin, as_it_is));
  CHECK_FALSE(passes(plugin, last_times(1.0001)));
}

TEST_CASE("one element in a later piece of a large tensor is seen", "[bench]") {
  const Variant tested =
      variant(bench_row("softmax", Direction::forward, "40000x1024", at::kFloat), "aten");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, last_times(1.01)));
}

TEST_CASE("hidden keys must be zero", "[bench]") {
  const auto mask = GENERATE(Mask::causal, Mask::padding, Mask::boolean, Mask::positions);
  const auto* shape = GENERATE("2x3x8x11", "3x8x11", "8x11");
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  const Variant tested =
      variant(bench_row("scaled_masked_softmax", direction, shape, at::kFloat, mask), "chain");
  CHECK(passes(tested, as_it_is));
  CHECK_FALSE(passes(tested, [](Outputs& o) {
    const at::Tensor hidden = o.result.eq(0);
    REQUIRE(hidden.any().item<bool>());
    o.result = o.result.masked_fill(hidden, 1e-20);
  }));
}

TEST_CASE("an additive mask is added to the scaled scores", "[bench]") {
  const auto direction = GENERATE(Direction::forward, Direction::backward);
  const Case c =
      bench_row("scaled_masked_softmax", direction, "3x8x9", at::kDouble, Mask::additive);
  CHECK(passes(variant(c, "chain"), as_it_is));
}

TEST_CASE("log-probabilities are float32, and their second result has a shape and a gradient",
          "[bench]") {
  const auto* op = GENERATE("fused_logprob_lse", "fused_logprob_entropy");
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  CAPTURE(op, dtype);
  const Case c = bench_row(op, Direction::both, "3x4x50", dtype);
  const Variant forward = variant(bench_row(op, Direction::forward, "3x4x50", dtype), "aten");
  CHECK_FALSE(passes(forward, [](Outputs& o) { o.others.at(0) = o.others[0].flatten(); }));
  const Outputs without =
      variant(bench_row("fused_logprob", Direction::both, "3x4x50", dtype), "aten").call(0);
  const Variant step = variant(c, "aten");
  CHECK_FALSE(step.error(without) <= step.tolerance);
  CHECK(c.op->variants(c, {.device = at::kCPU}).size() == 3);  // no cross_entropy
  if (dtype == at::kBFloat16) {
    CHECK(variant(bench_row("fused_logprob", Direction::forward, "3x4x50", dtype), "warpfuse")
              .tolerance == tolerance_of(at::kFloat, /*of_aten=*/false));
  }
}

TEST_CASE("a training step of a linear with dropout and softmax has all gradients", "[bench]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const Case c = bench_row("linear_dropout_softmax", Direction::both, "12x20x33", dtype);
  CHECK(variant(c, "aten").call(0).bytes() ==
        (33 * 20 + 12 * 20 + 33 + 12 * 33) * static_cast<int64_t>(c10::elementSize(dtype)));
}

TEST_CASE("attention over a cache is checked, and what it wrote", "[bench]") {
  const auto* shape = GENERATE("2x3x1x9x8", "2x3x6x6x8", "3x2x4x9x8");
  const auto mask = GENERATE(Mask::none, Mask::positions);
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16);
  CAPTURE(shape, dtype);
  const Case c = bench_row("cached_attention_softmax", Direction::forward, shape, dtype, mask);
  const std::vector<Variant> all = c.op->variants(c, {.device = at::kCPU});
  const Variant& alone = all[2];
  CHECK_FALSE(passes(alone, as_it_is));  // the cache lacks the new keys and values
  CHECK(passes(all[1], as_it_is));
  check_faults(alone, Direction::forward);
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
  const Case c = bench_row("softmax", Direction::forward, "3x7", at::kHalf);
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
