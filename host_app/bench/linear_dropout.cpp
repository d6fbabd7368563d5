#include "bench/linear_dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/dropout_softmax.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "bench/dropout.h"
#include "bench/reference.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kPieceElements = int64_t{16} * 1024 * 1024;  // 128 MiB in double precision

struct Drawn {
  at::Tensor output;
  at::Tensor state;  // what the backward has of the random numbers: the plugin's rng, ATen's mask
};

at::Tensor logits_of(const InputSet& in) { return at::linear(in.input, in.weight, in.bias); }

// The results of a step: the gradients that autograd makes of that of the logits.
Outputs step_outputs(const InputSet& in, const at::Tensor& grad_logits, const at::Tensor& output) {
  at::Tensor grad_input = grad_logits.matmul(in.weight);
  at::Tensor grad_weight = grad_logits.t().matmul(in.input);
  return {std::move(grad_weight), {std::move(grad_input), grad_logits.sum(0), output}};
}

// --- the plugin -------------------------------------------------------------------------------

Drawn private_forward(const InputSet& in) {
  static const auto op = detail::find_operator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double,
      const std::optional<at::Tensor>&)>("warpfuse::_linear_dropout_softmax");
  auto [output, rng] = op.call(in.input, in.weight, in.bias, kDropoutP, std::nullopt);
  return {std::move(output), std::move(rng)};
}

at::Tensor warpfuse_forward(const InputSet& in) {
  return linear_dropout_softmax(in.input, in.weight, in.bias, kDropoutP);
}

Outputs warpfuse_step(const InputSet& in) {
  const auto [output, rng] = private_forward(in);
  const at::Tensor no_statistics = at::empty({0}, output.options());
  const at::Tensor grad_logits = dropout_backward(in.grad_output, output, no_statistics, rng, -1,
                                                  /*softmax_first=*/false);
  return step_outputs(in, grad_logits, output);
}

at::Tensor kept_by_plugin(const InputSet& in) {
  const auto [output, rng] = private_forward(in);
  return kept_by(output, rng);
}

// --- ATen -------------------------------------------------------------------------------------

// Each tensor is let go once nothing needs it, as autograd does.
Drawn aten_with_mask(const InputSet& in) {
  auto [dropped, mask] = at::native_dropout(logits_of(in), kDropoutP, /*train=*/true);
  return {at::softmax(dropped, -1), std::move(mask)};
}

at::Tensor aten_forward(const InputSet& in) { return aten_with_mask(in).output; }

Outputs aten_step(const InputSet& in) {
  const auto [output, mask] = aten_with_mask(in);
  const at::Tensor grad_logits = aten_dropout_backward(
      at::_softmax_backward_data(in.grad_output, output, -1, output.scalar_type()), mask);
  return step_outputs(in, grad_logits, output);
}

at::Tensor kept_by_aten(const InputSet& in) {
  return std::get<1>(at::native_dropout(logits_of(in), kDropoutP, /*train=*/true));
}

// --- the linear alone -------------------------------------------------------------------------

Outputs linear_step(const InputSet& in) { return step_outputs(in, in.grad_output, logits_of(in)); }

// --- checks -----------------------------------------------------------------------------------

// A value in double precision, and the size of the terms that its elements are made of.
struct Expected {
  at::Tensor value, size;
};

at::Tensor in_double(const at::Tensor& tensor) { return tensor.to(at::kDouble); }

constexpr double kWrongShape = std::numeric_limits<double>::infinity();

bool fits(const Case& c, const at::Tensor& value, at::IntArrayRef sizes) {
  return value.sizes() == sizes && value.scalar_type() == c.dtype;
}

double error_beside(const Case& c, const at::Tensor& value, const Expected& expected) {
  return fits(c, value, expected.value.sizes())
             ? largest_error(value, expected.value, expected.size, smallest_difference(c.dtype))
             : kWrongShape;
}

// Calls `work` with ranges of the weight's rows that are about kPieceElements together.
template <typename Work>
void for_each_piece(const Case& c, const Work& work) {
  const LinearSizes sizes = linear_sizes_of(c.shape);
  const int64_t step = std::max<int64_t>(kPieceElements / sizes.in, 1);
  for (int64_t start = 0; start < sizes.out; start += step) {
    work(start, std::min(step, sizes.out - start));
  }
}

// Of the results of step_outputs, but for the forward's.
double gradient_error(const Case& c, const InputSet& in, const Expected& grad_logits,
                      const Outputs& outputs) {
  if (!fits(c, outputs.result, in.weight.sizes())) {
    return kWrongShape;
  }
  const at::Tensor input = in_double(in.input);
  Expected grad_input{at::zeros_like(input), at::zeros_like(input)};
  double worst =
      error_beside(c, outputs.others[1], {grad_logits.value.sum(0), grad_logits.size.sum(0)});
  for_each_piece(c, [&](int64_t start, int64_t length) {
    const at::Tensor weight = in_double(in.weight.narrow(0, start, length));
    const at::Tensor value = grad_logits.value.narrow(1, start, length);
    const at::Tensor size = grad_logits.size.narrow(1, start, length);
    worst = worse(worst, error_beside(c, outputs.result.narrow(0, start, length),
                                      {value.t().matmul(input), size.t().matmul(input.abs())}));
    grad_input.value += value.matmul(weight);
    grad_input.size += size.matmul(weight.abs());
  });
  return worse(worst, error_beside(c, outputs.others[0], grad_input));
}

// Of a softmax of `logits` with dropout before it; `keep` draws its random numbers once more.
double softmax_error(const Case& c, const InputSet& in, const at::Tensor& logits,
                     const Outputs& outputs, at::Tensor (*keep)(const InputSet&)) {
  Case row = c;
  row.op = Operator::dropout_softmax;
  row.shape = c.scores();
  row.direction = Direction::forward;
  InputSet known = in;
  known.scores = logits;
  rewind_generators();
  known.keep = keep(in);
  if (c.direction == Direction::forward) {
    return error_of(row, known, outputs.result);
  }
  const at::Tensor k = in_double(known.keep) / (1 - kDropoutP);
  const at::Tensor y = at::softmax(in_double(known.scores) * k, -1);
  const at::Tensor g = in_double(in.grad_output);
  const at::Tensor yg = y * g;
  const Expected grad_logits{y * k * (g - yg.sum(-1, true)),
                             y * k * (g.abs() + yg.abs().sum(-1, true))};
  return worse(error_of(row, known, outputs.others[2]),
               gradient_error(c, in, grad_logits, outputs));
}

double aten_error(const Case& c, const InputSet& in, const Outputs& outputs) {
  return softmax_error(c, in, logits_of(in), outputs, kept_by_aten);
}

double plugin_error(const Case& c, const InputSet& in, const Outputs& outputs) {
  const double error = softmax_error(c, in, logits_of(in), outputs, kept_by_plugin);
  if (c10::elementSize(c.dtype) > 2) {
    return error;
  }
  const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const at::Tensor unrounded = at::linear(wide(in.input), wide(in.weight), wide(in.bias));
  return std::min(error, softmax_error(c, in, unrounded, outputs, kept_by_plugin));
}

double linear_error(const Case& c, const InputSet& in, const Outputs& outputs) {
  const bool forward = c.direction == Direction::forward;
  const at::Tensor& logits = forward ? outputs.result : outputs.others[2];
  if (!fits(c, logits, c.scores().sizes)) {
    return kWrongShape;
  }
  const at::Tensor input = in_double(in.input);
  double worst = 0;
  for_each_piece(c, [&](int64_t start, int64_t length) {
    const at::Tensor weight = in_double(in.weight.narrow(0, start, length));
    const at::Tensor bias = in_double(in.bias.narrow(0, start, length));
    worst = worse(worst, error_beside(c, logits.narrow(1, start, length),
                                      {at::linear(input, weight, bias),
                                       at::linear(input.abs(), weight.abs(), bias.abs())}));
  });
  if (forward) {
    return worst;
  }
  const at::Tensor g = in_double(in.grad_output);
  return worse(worst, gradient_error(c, in, {g, g.abs()}, outputs));
}

}  // namespace

LinearSizes linear_sizes_of(const Shape& shape) {
  return {.rows = shape.sizes[0], .in = shape.sizes[1], .out = shape.sizes[2]};
}

std::vector<Variant> linear_dropout_variants(const Case& c) {
  using enum Variant::Kind;
  const auto by = [c](double (*error)(const Case&, const InputSet&, const Outputs&)) {
    return [c, error](const InputSet& in, const Outputs& outputs) { return error(c, in, outputs); };
  };
  using Gives = Variant::Gives;
  if (c.direction == Direction::forward) {
    return {{"warpfuse", plugin, warpfuse_forward, Gives::result, by(plugin_error)},
            {"aten", aten, aten_forward, Gives::result, by(aten_error)},
            {"linear", aten, logits_of, Gives::result, by(linear_error)}};
  }
  return {{"warpfuse", plugin, warpfuse_step, Gives::result, by(plugin_error)},
          {"aten", aten, aten_step, Gives::result, by(aten_error)},
          {"linear", aten, linear_step, Gives::result, by(linear_error)}};
}

std::vector<std::string> linear_dropout_operators(Direction direction) {
  std::vector<std::string> names{"warpfuse::_dropout_mask", "warpfuse::_linear_dropout_softmax"};
  names.emplace_back(direction == Direction::forward ? "warpfuse::linear_dropout_softmax"
                                                     : "warpfuse::_dropout_softmax_backward");
  return names;
}

Traffic linear_dropout_traffic(const Case& c) {
  const LinearSizes sizes = linear_sizes_of(c.shape);
  const auto element = static_cast<int64_t>(c10::elementSize(c.dtype));
  const int64_t mask = sizes.rows * sizes.out;
  const int64_t pass = mask * element;
  const int64_t bias = sizes.out * element;
  const int64_t operands = (sizes.rows + sizes.out) * sizes.in * element;
  const Traffic forward{.least = operands + bias + pass,
                        .fused = operands + bias + 3 * pass,
                        .unfused = operands + bias + 5 * pass + mask};
  if (c.direction == Direction::forward) {
    return forward;
  }
  const int64_t gradients = 2 * operands + bias;  // and the operands that they are made of
  return {.least = forward.least + gradients + 2 * pass,
          .fused = forward.fused + gradients + 6 * pass,
          .unfused = forward.unfused + gradients + 11 * pass + mask};
}

int64_t linear_input_bytes(const Case& c) {
  const LinearSizes sizes = linear_sizes_of(c.shape);
  const int64_t gradient = c.direction == Direction::forward ? 0 : sizes.rows * sizes.out;
  return ((sizes.rows + sizes.out) * sizes.in + sizes.out + gradient) *
         static_cast<int64_t>(c10::elementSize(c.dtype));
}

}  // namespace warpfuse::host::bench
