// The check that stands before each timing: what is right passes, what is a little wrong does not.

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "bench/inputs.h"
#include "bench/reference.h"
#include "bench/rules.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

Case row(Operator op, Direction direction, const char* shape, c10::ScalarType dtype,
         Mask mask = Mask::none) {
  return {op, direction, parse_shape(shape).value(), dtype, mask};
}

InputSet inputs_of(const Case& c) { return make_inputs(c, at::kCPU, 1).front(); }

bool passes(const Case& c, const InputSet& inputs, const at::Tensor& value) {
  return error_of(c, inputs, value) <= tolerance_of(c.dtype, false);
}

}  // namespace

TEST_CASE("a softmax is right or wrong", "[bench]") {
  const auto dtype = GENERATE(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble);
  const Case c = row(Operator::softmax, Direction::forward, "9x70x3@1", dtype);
  const InputSet inputs = inputs_of(c);
  const at::Tensor right = at::softmax(inputs.scores.to(at::kDouble), 1).to(dtype);
  CHECK(passes(c, inputs, right));
  CHECK_FALSE(passes(c, inputs, at::softmax(inputs.scores.to(at::kDouble), 2).to(dtype)));
  CHECK_FALSE(passes(c, inputs, right * 1.02));
  CHECK_FALSE(passes(c, inputs, right.to(at::kLong)));
  CHECK_FALSE(passes(c, inputs, right.narrow(0, 0, 8)));
  at::Tensor one_off = right.clone();
  one_off[8][69][2] = one_off[8][69][2] * 1.02;
  CHECK_FALSE(passes(c, inputs, one_off));
  one_off[8][69][2] = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(error_of(c, inputs, one_off)));
}

TEST_CASE("one element in a later piece of a large tensor is seen", "[bench]") {
  const Case c = row(Operator::softmax, Direction::forward, "40000x1024", at::kFloat);
  const InputSet inputs = inputs_of(c);
  at::Tensor value = at::softmax(inputs.scores, -1);
  CHECK(passes(c, inputs, value));
  value[39999][1023] += 1e-5;
  CHECK_FALSE(passes(c, inputs, value));
}

TEST_CASE("log_softmax and backward passes are checked", "[bench]") {
  const Case log = row(Operator::log_softmax, Direction::forward, "5x33", at::kFloat);
  const InputSet inputs = inputs_of(log);
  const at::Tensor right = at::log_softmax(inputs.scores, -1);
  CHECK(passes(log, inputs, right));
  CHECK_FALSE(passes(log, inputs, right + 1e-3));

  for (const Operator op : {Operator::softmax, Operator::log_softmax}) {
    const Case back = row(op, Direction::backward, "5x33", at::kFloat);
    const InputSet in = inputs_of(back);
    const at::Tensor& y = in.output;
    const at::Tensor& g = in.grad_output;
    const at::Tensor gradient =
        op == Operator::softmax ? y * (g - (g * y).sum(-1, true)) : g - y.exp() * g.sum(-1, true);
    CHECK(passes(back, in, gradient));
    CHECK_FALSE(passes(back, in, op == Operator::softmax ? y * g : g - y.exp()));
  }
}

TEST_CASE("hidden keys must be zero", "[bench]") {
  const Mask mask = GENERATE(Mask::causal, Mask::padding, Mask::boolean, Mask::positions);
  const char* shape = GENERATE("2x3x8x11", "3x8x11", "8x11");
  const Case c = row(Operator::scaled_masked_softmax, Direction::forward, shape, at::kFloat, mask);
  const InputSet inputs = inputs_of(c);
  const at::Tensor hidden = inputs.hidden.expand(c.shape.sizes);
  REQUIRE(hidden.any().item<bool>());
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor right = at::softmax((inputs.scores * kScale).masked_fill(hidden, -infinity), -1)
                               .masked_fill(hidden, 0);
  CHECK(passes(c, inputs, right));
  CHECK_FALSE(passes(c, inputs, right.masked_fill(hidden, 1e-20)));
  CHECK_FALSE(passes(c, inputs, at::softmax(inputs.scores * kScale, -1)));
}

TEST_CASE("an additive mask is added to the scaled scores", "[bench]") {
  const Case c =
      row(Operator::scaled_masked_softmax, Direction::forward, "3x8x9", at::kFloat, Mask::additive);
  const InputSet inputs = inputs_of(c);
  CHECK(passes(c, inputs, at::softmax(inputs.scores * kScale + *inputs.attn_mask, -1)));
  CHECK_FALSE(passes(c, inputs, at::softmax((inputs.scores + *inputs.attn_mask) * kScale, -1)));
}

TEST_CASE("the backward's outputs are softmaxes, zero where hidden", "[bench]") {
  const Case c =
      row(Operator::scaled_masked_softmax, Direction::backward, "2x8x9", at::kFloat, Mask::causal);
  const InputSet inputs = inputs_of(c);
  CHECK((inputs.output.sum(-1) - 1).abs().max().item<double>() < 1e-6);
  CHECK(inputs.output.masked_select(inputs.hidden).abs().max().item<double>() == 0);
}

TEST_CASE("input sets differ, are aligned and come again", "[bench]") {
  const Case c = row(Operator::softmax, Direction::forward, "3x7", at::kHalf);
  const std::vector<InputSet> first = make_inputs(c, at::kCPU, 3);
  const std::vector<InputSet> again = make_inputs(c, at::kCPU, 3);
  REQUIRE(first.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(first[i].scores.equal(again[i].scores));
    CHECK(reinterpret_cast<uintptr_t>(first[i].scores.const_data_ptr()) % 64 == 0);
  }
  CHECK_FALSE(first[0].scores.equal(first[1].scores));
  CHECK_FALSE(first[1].scores.equal(first[2].scores));
}

TEST_CASE("log-probabilities of targets are checked", "[bench]") {
  const Case c = row(Operator::fused_logprob, Direction::forward, "3x4x50", at::kBFloat16);
  const InputSet inputs = inputs_of(c);
  const auto ok = [&](const at::Tensor& value) {
    return error_of(c, inputs, value) <= tolerance_of(c, /*of_aten=*/false);
  };
  const at::Tensor right = at::log_softmax(inputs.scores.to(at::kDouble), -1)
                               .gather(-1, inputs.targets.unsqueeze(-1))
                               .squeeze(-1)
                               .to(at::kFloat);
  CHECK(ok(right));
  CHECK_FALSE(ok(right.to(at::kBFloat16)));  // float32 is promised, of bfloat16 logits too
  CHECK(error_of(c, inputs, right.to(at::kBFloat16)) <= tolerance_of(c, /*of_aten=*/true));
  CHECK_FALSE(ok(right.neg()));
  CHECK_FALSE(ok(right.flatten()));
  at::Tensor one_off = right.clone();
  one_off[2][3] += 1e-3;
  CHECK_FALSE(ok(one_off));
  one_off[2][3] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(ok(one_off));
}

TEST_CASE("the gradient of log-probabilities is checked", "[bench]") {
  const Direction direction = GENERATE(Direction::backward, Direction::both);
  const Case c = row(Operator::fused_logprob, direction, "12x50", at::kFloat);
  const InputSet inputs = inputs_of(c);
  const at::Tensor p = at::softmax(inputs.scores.to(at::kDouble), -1);
  const at::Tensor target = inputs.targets.unsqueeze(-1);
  const at::Tensor g = inputs.grad_output.to(at::kDouble).unsqueeze(-1);
  const at::Tensor right = ((p * -g).scatter_add(-1, target, g)).to(at::kFloat);
  CHECK(passes(c, inputs, right));
  CHECK_FALSE(passes(c, inputs, right * 1.001));
  CHECK_FALSE(passes(c, inputs, (p * -g).to(at::kFloat)));  // without the target's element
  at::Tensor one_off = right.clone();
  one_off[11][49] *= 1.001;
  CHECK_FALSE(passes(c, inputs, one_off));
}

TEST_CASE("what fused_logprob's backward is given belongs together", "[bench]") {
  const Case c = row(Operator::fused_logprob, Direction::backward, "3x4x50", at::kDouble);
  const InputSet inputs = inputs_of(c);
  const at::Tensor expected = at::log_softmax(inputs.scores, -1);
  CHECK((inputs.output - expected).abs().max().item<double>() < 1e-12);
  REQUIRE(inputs.statistics.sizes() == at::IntArrayRef({3, 4, 2}));
  const at::Tensor lse = inputs.statistics.sum(-1).view({3, 4, 1});  // maximum + log of the sum
  CHECK((inputs.scores - lse - expected).abs().max().item<double>() < 1e-12);
  CHECK(inputs.grad_negated.equal(-inputs.grad_rounded));
}
