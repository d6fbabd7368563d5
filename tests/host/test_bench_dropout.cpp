// The check of rows with dropout, which knows what was dropped.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>

#include "bench/dropout.h"
#include "bench/inputs.h"
#include "bench/reference.h"
#include "support/catch.h"

using namespace warpfuse::host::bench;

namespace {

Case row(Operator op, Direction direction, const char* shape, c10::ScalarType dtype) {
  return {op, direction, parse_shape(shape).value(), dtype, Mask::none};
}

bool passes(const Case& c, const InputSet& inputs, const at::Tensor& value) {
  return error_of(c, inputs, value) <= tolerance_of(c, /*of_aten=*/false);
}

// Inputs of a row with dropout, as the plugin would leave them, with every fifth element dropped.
InputSet with_dropout(const Case& c) {
  InputSet in;
  in.scores = at::randn(c.shape.sizes, c.dtype);
  in.grad_output = at::randn(c.shape.sizes, c.dtype);
  in.keep = at::arange(c.shape.elements()).remainder(5).ne(0).view(c.shape.sizes);
  in.output = in.scores.clone();
  InputSet forward = in;
  forward.scores = in.output;
  replace_by_forward(saved_forward(c), forward);
  return in;
}

}  // namespace

TEST_CASE("dropout before and after a softmax is checked", "[bench]") {
  const Operator op = GENERATE(Operator::dropout_softmax, Operator::softmax_dropout);
  const bool first = op == Operator::softmax_dropout;
  const Case c = row(op, Direction::forward, "9x70", at::kFloat);
  const InputSet in = with_dropout(c);
  const at::Tensor k = in.keep.to(at::kDouble) / 0.8;
  const at::Tensor x = in.scores.to(at::kDouble);
  const at::Tensor s = at::softmax(x, -1);
  const at::Tensor right = (first ? s * k : at::softmax(x * k, -1)).to(at::kFloat);
  CHECK(passes(c, in, right));
  CHECK_FALSE(passes(c, in, s.to(at::kFloat)));  // nothing dropped
  CHECK_FALSE(passes(c, in, (first ? right * 0.8 : at::softmax(x * k * 0.8, -1)).to(at::kFloat)));
  CHECK_FALSE(passes(c, in, right.roll(1, -1)));  // another mask
  at::Tensor one_off = right.clone();
  one_off[8][0] += 1e-6;
  CHECK_FALSE(passes(c, in, one_off));

  const Case back = row(op, Direction::backward, "9x70", at::kFloat);
  const at::Tensor g = in.grad_output.to(at::kDouble);
  const at::Tensor y = first ? s : in.output.to(at::kDouble);
  const at::Tensor h = first ? g * k : g;
  const at::Tensor gradient = y * (h - (h * y).sum(-1, true)) * (first ? at::ones_like(k) : k);
  CHECK(passes(back, in, gradient.to(at::kFloat)));
  CHECK_FALSE(passes(back, in, (y * (g - (g * y).sum(-1, true))).to(at::kFloat)));
}

TEST_CASE("ATen's backward of softmax_dropout is given the softmax", "[bench]") {
  const Case c = row(Operator::softmax_dropout, Direction::backward, "3x50", at::kDouble);
  CHECK((with_dropout(c).output.sum(-1) - 1).abs().max().item<double>() < 1e-12);
}
