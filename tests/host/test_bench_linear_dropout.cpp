// What the check of linear_dropout_softmax sees in ATen's chain and in a linear alone; neither
// needs the plugin.

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>

#include "bench/inputs.h"
#include "bench/linear_dropout.h"
#include "bench/reference.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

Case row(Direction direction, c10::ScalarType dtype) {
  return {Operator::linear_dropout_softmax, direction, parse_shape("12x20x33").value(), dtype,
          Mask::none};
}

Variant variant(const Case& c, const std::string& name) {
  const std::vector<Variant> all = linear_dropout_variants(c);
  return *std::ranges::find(all, name, &Variant::name);
}

bool passes(const Case& c, const Variant& variant, const InputSet& inputs, const Outputs& outputs) {
  return variant.error(inputs, outputs) <= tolerance_of(c, /*of_aten=*/true);
}

}  // namespace

TEST_CASE("inputs of a linear", "[bench]") {
  const std::vector<InputSet> inputs = make_inputs(row(Direction::both, at::kFloat), at::kCPU, 2);
  CHECK(inputs[0].input.sizes() == at::IntArrayRef({12, 20}));
  CHECK(inputs[0].weight.sizes() == at::IntArrayRef({33, 20}));
  CHECK(inputs[0].bias.sizes() == at::IntArrayRef({33}));
  CHECK(inputs[0].grad_output.sizes() == at::IntArrayRef({12, 33}));
  CHECK_FALSE(inputs[0].weight.equal(inputs[1].weight));
}

TEST_CASE("results of a linear, with and without dropout and softmax, are right or wrong",
          "[bench]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const auto* name = GENERATE("aten", "linear");
  const Case c = row(Direction::forward, dtype);
  const InputSet in = make_inputs(c, at::kCPU, 1).front();
  const Variant tested = variant(c, name);
  rewind_generators();
  const Outputs outputs = tested.call(in);
  CHECK(passes(c, tested, in, outputs));
  CHECK_FALSE(passes(c, tested, in, outputs.result * 1.1));
  CHECK_FALSE(passes(c, tested, in, outputs.result.t()));
  CHECK_FALSE(passes(c, tested, in, outputs.result.to(at::kHalf)));
  at::Tensor one_off = outputs.result.clone();
  one_off[11][32] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(passes(c, tested, in, one_off));
  if (tested.name == "aten") {
    CHECK_FALSE(passes(c, tested, in, tested.call(in)));  // drew other numbers
  }
}

TEST_CASE("each result of a training step is checked", "[bench]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  const auto* name = GENERATE("aten", "linear");
  const Case c = row(Direction::both, dtype);
  const InputSet in = make_inputs(c, at::kCPU, 1).front();
  const Variant tested = variant(c, name);
  rewind_generators();
  const Outputs right = tested.call(in);
  CHECK(passes(c, tested, in, right));
  REQUIRE(right.others.size() == 3);
  CHECK(right.result.sizes() == in.weight.sizes());
  CHECK(right.others[0].sizes() == in.input.sizes());
  CHECK(right.others[1].sizes() == in.bias.sizes());
  CHECK(right.bytes() ==
        (33 * 20 + 12 * 20 + 33 + 12 * 33) * static_cast<int64_t>(c10::elementSize(dtype)));
  CHECK_FALSE(passes(c, tested, in, {right.result * 1.5, right.others}));
  for (size_t i = 0; i < right.others.size(); ++i) {
    Outputs wrong = right;
    wrong.others[i] = right.others[i] * 1.5;
    INFO(i);
    CHECK_FALSE(passes(c, tested, in, wrong));
  }
  right.fill(std::numeric_limits<double>::quiet_NaN());
  CHECK_FALSE(passes(c, tested, in, right));
}
