// linear_dropout_softmax, with a bias, on shapes rows x in x out. `Direction::both` is a training
// step: the forward, and the gradients of weight, input and bias for a given gradient of its
// result, by the operators that autograd calls. ATen's are at::linear, native_dropout and softmax;
// "linear" is at::linear alone and its gradients, so that the difference is what dropout and
// softmax cost. "inference" is the forward without dropout, and "split" that with float32 products
// by tensor cores allowed.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/softmax.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/dropout_softmax.h>

#include <tuple>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace linear_dropout_suite {
namespace {

constexpr std::array kDirections{Direction::forward, Direction::both};
constexpr double kStepFactor = 3;  // three results are rounded one after the other

struct Set {
  at::Tensor input, weight, bias;  // [rows, in], [out, in] and [out]
  at::Tensor grad_output;          // [rows, out], of a training step
};

Sets<Set> make_inputs(const Case& c, const Setup& setup) {
  const LinearSizes sizes(c.shape);
  const at::TensorOptions options = options_of(c, setup);
  Sets<Set> sets = make_sets<Set>(setup);
  add_linear(*sets, sizes, options, setup);
  if (!c.is_forward()) {
    add_tensors(*sets, &Set::grad_output, {sizes.rows, sizes.out}, options);
  }
  return sets;
}

// --- calls ------------------------------------------------------------------------------------

at::Tensor logits_of(const Set& in) { return at::linear(in.input, in.weight, in.bias); }

// The results of a step: the gradients that autograd makes of that of the logits.
Outputs step_outputs(const Set& in, const at::Tensor& grad_logits, const at::Tensor& output) {
  at::Tensor grad_input = grad_logits.matmul(in.weight);
  at::Tensor grad_weight = grad_logits.t().matmul(in.input);
  return {std::move(grad_weight), {std::move(grad_input), grad_logits.sum(0), output}};
}

// A result, and what the backward has of the random numbers: the plugin's rng, or ATen's mask.
struct Drawn {
  at::Tensor output, state;
};

Drawn private_forward(const Set& in) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double,
      const std::optional<at::Tensor>&, bool)>("warpfuse::_linear_dropout_softmax");
  auto [output, rng] = op.call(in.input, in.weight, in.bias, kDropoutP, std::nullopt, false);
  return {std::move(output), std::move(rng)};
}

Outputs warpfuse_forward(const Set& in) {
  return linear_dropout_softmax(in.input, in.weight, in.bias, kDropoutP);
}

template <bool kSplit>
Outputs inference_forward(const Set& in) {
  return linear_dropout_softmax(in.input, in.weight, in.bias, kDropoutP, /*training=*/false,
                                kSplit);
}

Outputs warpfuse_step(const Set& in) {
  const auto [output, rng] = private_forward(in);
  const at::Tensor no_statistics = at::empty({0}, output.options());
  const at::Tensor grad_logits = dropout_backward(in.grad_output, output, no_statistics, rng, -1,
                                                  /*softmax_first=*/false);
  return step_outputs(in, grad_logits, output);
}

// What logits are multiplied by, with the random numbers of the call drawn once more.
at::Tensor factors_of_plugin(const Set& in) {
  const auto [output, rng] = private_forward(in);
  return dropout_factors(kept_by(output, rng));
}

at::Tensor no_factors(const Set& in) { return at::ones({}, in.input.options().dtype(at::kDouble)); }

// Each tensor is let go once nothing needs it, as autograd does.
Drawn aten_with_mask(const Set& in) {
  auto [dropped, mask] = at::native_dropout(logits_of(in), kDropoutP, /*train=*/true);
  return {at::softmax(dropped, -1), std::move(mask)};
}

Outputs aten_forward(const Set& in) { return aten_with_mask(in).output; }

Outputs aten_step(const Set& in) {
  const auto [output, mask] = aten_with_mask(in);
  const at::Tensor grad_logits = aten_dropout_backward(
      at::_softmax_backward_data(in.grad_output, output, -1, output.scalar_type()), mask);
  return step_outputs(in, grad_logits, output);
}

at::Tensor factors_of_aten(const Set& in) { return dropout_factors(aten_with_mask(in).state); }

Outputs linear_forward(const Set& in) { return logits_of(in); }

Outputs linear_step(const Set& in) { return step_outputs(in, in.grad_output, logits_of(in)); }

// --- checks -----------------------------------------------------------------------------------

constexpr double kLosses = 2;

at::Tensor in_double(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

// The logits in double precision, with the size of the terms that they are sums of.
Expected expected_logits(const Set& in) {
  const at::Tensor input = in_double(in.input), weight = in_double(in.weight);
  const at::Tensor bias = in_double(in.bias);
  return {at::linear(input, weight, bias), at::linear(input.abs(), weight.abs(), bias.abs())};
}

// Of the results of step_outputs, but for the forward's.
double gradient_error(const Case& c, const Set& in, const Expected& grad_logits,
                      const Outputs& outputs) {
  const at::Tensor input = in_double(in.input), weight = in_double(in.weight);
  const auto& [value, size] = grad_logits;
  const double of_weight = error_beside(
      outputs.result, c.dtype, {value.t().matmul(input), size.t().matmul(input.abs())}, kLosses);
  const double of_input = error_beside(outputs.others[0], c.dtype,
                                       {value.matmul(weight), size.matmul(weight.abs())}, kLosses);
  return worse(worse(of_weight, of_input),
               error_beside(outputs.others[1], c.dtype, {value.sum(0), size.sum(0)}, kLosses));
}

// Logits may be rounded, and the softmax changes by |logit| times as much, as does the sum that it
// is divided by.
double softmax_error(const Case& c, const Set& in, const Outputs& outputs,
                     at::Tensor (*factors)(const Set&)) {
  rewind_generators();
  const at::Tensor k = factors(in);
  const at::Tensor x = expected_logits(in).value * k;
  const at::Tensor y = at::softmax(x, -1);
  const at::Tensor rounded = x.abs() + (y * x.abs()).sum(-1, true) + 1;
  const Expected result{y, y * rounded};
  if (c.is_forward()) {
    return error_beside(outputs.result, c.dtype, result, kLosses);
  }
  Expected grad_logits = softmax_gradient(y, in_double(in.grad_output), y * k, -1);
  // Probabilities of long rows are subnormal numbers of float16, which are off by as much as they
  // lie apart: in the result, and in its gradient.
  grad_logits.size =
      grad_logits.size * rounded + 2 * smallest_difference(c.dtype) / tolerance_of(c.dtype, false);
  return worse(error_beside(outputs.others[2], c.dtype, result, kLosses),
               gradient_error(c, in, grad_logits, outputs));
}

double linear_error(const Case& c, const Set& in, const Outputs& outputs) {
  if (c.is_forward()) {
    return error_beside(outputs.result, c.dtype, expected_logits(in), kLosses);
  }
  const at::Tensor g = in_double(in.grad_output);
  return worse(error_beside(outputs.others[2], c.dtype, expected_logits(in), kLosses),
               gradient_error(c, in, {g, g.abs()}, outputs));
}

// TF32 has the precision of float16, in each of the terms that a logit is a sum of.
double tolerance(const Case& c, bool of_aten) {
  return tolerance_of(c.tf32 ? at::kHalf : c.dtype, of_aten || c.tf32) *
         (c.is_forward() ? 1 : kStepFactor);
}

// --- the benchmark ----------------------------------------------------------------------------

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const Sets<Set> sets = make_inputs(c, setup);
  const auto softmax_of = [&](at::Tensor (*factors)(const Set&)) {
    return against(sets, [c, factors](const Set& in, const Outputs& outputs) {
      return softmax_error(c, in, outputs, factors);
    });
  };
  const auto linear = against(
      sets, [c](const Set& in, const Outputs& outputs) { return linear_error(c, in, outputs); });
  const bool forward = c.is_forward();
  const double ours = tolerance(c, /*of_aten=*/false), others = tolerance(c, /*of_aten=*/true);
  std::vector<Variant> result{
      {"warpfuse", plugin, on(sets, forward ? warpfuse_forward : warpfuse_step),
       softmax_of(factors_of_plugin), ours},
      {"aten", aten, on(sets, forward ? aten_forward : aten_step), softmax_of(factors_of_aten),
       others},
      {"linear", aten, on(sets, forward ? linear_forward : linear_step), linear, others}};
  if (forward) {
    result.push_back(
        {"inference", plugin, on(sets, inference_forward<false>), softmax_of(no_factors), ours});
    if (setup.device.is_cuda() && c.dtype == at::kFloat && !c.tf32) {
      result.push_back(
          {"split", plugin, on(sets, inference_forward<true>), softmax_of(no_factors), ours});
    }
  }
  return result;
}

std::vector<std::string> operators(const Case& c) {
  return {
      "warpfuse::_dropout_mask", "warpfuse::_linear_dropout_softmax",
      c.is_forward() ? "warpfuse::linear_dropout_softmax" : "warpfuse::_dropout_softmax_backward"};
}

// A forward reads input, weight and bias and writes n results, as one kernel for all of it does;
// fused after a matmul it has the logits written by that, read and written once more; unfused there
// are two kernels after that matmul, 4 n, and a mask of 1 byte per element. The backward reads
// result and gradient, and input and weight once more, and writes the three gradients; fused it has
// the logits' gradient written and read by two matmuls and a sum; unfused two kernels, 8 n, and the
// mask.
Bytes bytes(const Case& c) {
  const LinearSizes sizes(c.shape);
  const auto element = c.element_bytes();
  const int64_t mask = sizes.rows * sizes.out;
  const int64_t pass = mask * element;
  const int64_t bias = sizes.out * element;
  const int64_t operands = (sizes.rows + sizes.out) * sizes.in * element;
  const Bytes forward{.least = operands + bias + pass,
                      .fused = operands + bias + 3 * pass,
                      .unfused = operands + bias + 5 * pass + mask,
                      .inputs = operands + bias};
  if (c.is_forward()) {
    return forward;
  }
  const int64_t gradients = 2 * operands + bias;  // and the operands that they are made of
  return {.least = forward.least + gradients + 2 * pass,
          .fused = forward.fused + gradients + 6 * pass,
          .unfused = forward.unfused + gradients + 11 * pass + mask,
          .inputs = forward.inputs + pass};
}

constexpr Benchmark kBenchmark{.name = "linear_dropout_softmax",
                               .shapes = kLinearShapes,
                               .takes = is_linear,
                               .directions = kDirections,
                               .tf32 = true,
                               .operators = operators,
                               .bytes = bytes,
                               .variants = variants};

}  // namespace
}  // namespace linear_dropout_suite

constexpr Benchmark kLinearDropoutSoftmax = linear_dropout_suite::kBenchmark;

}  // namespace warpfuse::host::bench
