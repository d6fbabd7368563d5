#include "bench/reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/dropout.h"
#include "bench/logprob.h"
#include "bench/rules.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kPieceElements = int64_t{16} * 1024 * 1024;  // 128 MiB in double precision
constexpr double kAtenFactor = 8;
constexpr double kAtenLogprobFactor = 3;
constexpr double kStepFactor = 3;

// The part of a tensor that a piece has; the tensor broadcasts to the row's shape.
using Part = std::function<at::Tensor(const at::Tensor&)>;

// Calls `work` with pieces of about kPieceElements, cut along the largest other dimension, so that
// each softmax is whole.
void for_each_piece(const Shape& shape, const std::function<void(const Part&)>& work) {
  size_t cut = shape.softmax_dim() == 0 ? shape.sizes.size() - 1 : 0;
  for (size_t d = 0; d < shape.sizes.size(); ++d) {
    if (d != shape.softmax_dim() && shape.sizes[d] > shape.sizes[cut]) {
      cut = d;
    }
  }
  if (cut == shape.softmax_dim()) {  // one dimension alone
    work([](const at::Tensor& tensor) { return tensor; });
    return;
  }
  const int64_t size = shape.sizes[cut];
  const int64_t step = std::max<int64_t>(kPieceElements / (shape.elements() / size), 1);
  for (int64_t start = 0; start < size; start += step) {
    const int64_t length = std::min(step, size - start);
    work([&](const at::Tensor& tensor) {
      return tensor.expand(shape.sizes).narrow(static_cast<int64_t>(cut), start, length);
    });
  }
}

// What dropout multiplies elements by.
at::Tensor factors(const InputSet& inputs, const Part& part) {
  return part(inputs.keep).to(at::kDouble) / (1 - kDropoutP);
}

at::Tensor forward(const Case& c, const InputSet& inputs, const Part& part) {
  at::Tensor x = part(inputs.scores).to(at::kDouble);
  if (c.op == Operator::dropout_softmax) {
    return at::softmax(x * factors(inputs, part), c.shape.dim);
  }
  if (c.op == Operator::softmax_dropout) {
    return at::softmax(x, c.shape.dim) * factors(inputs, part);
  }
  if (c.op == Operator::log_softmax) {
    return at::log_softmax(x, c.shape.dim);
  }
  if (c.op == Operator::softmax) {
    return at::softmax(x, c.shape.dim);
  }
  x = x * kScale;
  if (c.mask == Mask::additive && inputs.attn_mask) {
    x = x + part(*inputs.attn_mask).to(at::kDouble);
  }
  if (!inputs.hidden.defined()) {
    return at::softmax(x, -1);
  }
  const at::Tensor hidden = part(inputs.hidden);
  x = x.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::softmax(x, -1).masked_fill(hidden, 0.0);
}

struct Expected {
  at::Tensor value;
  at::Tensor size;  // of the terms that an element is made of
};

Expected expected_of(const Case& c, const InputSet& inputs, const Part& part) {
  const int64_t dim = c.shape.dim;
  if (c.direction == Direction::forward) {
    const at::Tensor value = forward(c, inputs, part);
    return {value, c.op == Operator::log_softmax ? value.abs() + 1 : value};
  }
  // softmax_dropout's backward has the scores, from which the softmax is made anew.
  const at::Tensor y = c.op == Operator::softmax_dropout
                           ? at::softmax(part(inputs.scores).to(at::kDouble), dim)
                           : part(inputs.output).to(at::kDouble);
  at::Tensor g = part(inputs.grad_output).to(at::kDouble);
  if (c.op == Operator::log_softmax) {
    const at::Tensor p = y.exp();
    return {g - p * g.sum(dim, true), g.abs() + p * g.abs().sum(dim, true)};
  }
  if (c.op == Operator::softmax_dropout) {
    g = g * factors(inputs, part);
  }
  const at::Tensor gy = g * y;
  at::Tensor scaled = y;
  if (c.op == Operator::scaled_masked_softmax) {
    scaled = y * kScale;
  } else if (c.op == Operator::dropout_softmax) {
    scaled = y * factors(inputs, part);
  }
  return {scaled * (g - gy.sum(dim, true)), scaled * (g.abs() + gy.abs().sum(dim, true))};
}

}  // namespace

double smallest_difference(c10::ScalarType dtype) {
  return std::ldexp(1.0, dtype == at::kHalf ? -24 : -126);
}

double largest_error(const at::Tensor& value, const at::Tensor& expected, const at::Tensor& size,
                     double ignored) {
  const at::Tensor distance = (value.to(at::kDouble) - expected).abs();
  return at::where(distance.le(ignored), at::zeros_like(distance), distance / size)
      .max()
      .item<double>();
}

double worse(double one, double other) { return std::isnan(one) || other <= one ? one : other; }

double error_of(const Case& c, const InputSet& inputs, const at::Tensor& value) {
  if (c.op == Operator::fused_logprob) {
    return logprob_error(c, inputs, value);
  }
  if (value.sizes() != at::IntArrayRef(c.shape.sizes) || value.scalar_type() != c.dtype) {
    return std::numeric_limits<double>::infinity();
  }
  const double ignored = smallest_difference(c.dtype) * (has_dropout(c.op) ? 2 : 1);
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    const Expected expected = expected_of(c, inputs, part);
    worst = worse(worst, largest_error(part(value), expected.value, expected.size, ignored));
  });
  return worst;
}

double tolerance_of(c10::ScalarType dtype, bool of_aten) {
  const double factor = of_aten ? kAtenFactor : 1;
  switch (dtype) {
    case at::kDouble:
      return 1e-12 * factor;
    case at::kHalf:
      return 7e-4 * factor;
    case at::kBFloat16:
      return 5e-3 * factor;
    default:
      return 2e-5 * factor;
  }
}

double tolerance_of(const Case& c, bool of_aten) {
  if (c.op == Operator::linear_dropout_softmax) {
    const double once = tolerance_of(c.tf32 ? at::kHalf : c.dtype, of_aten);
    return c.direction == Direction::forward ? once : once * kStepFactor;
  }
  if (c.op != Operator::fused_logprob) {
    const bool in_two_steps = has_dropout(c.op) && c.shape.dim != -1;
    const bool rounds_twice =
        c.op == Operator::softmax_dropout && c.direction != Direction::forward;
    return tolerance_of(c.dtype, of_aten || in_two_steps) * (rounds_twice ? 2 : 1);
  }
  if (c.direction != Direction::forward) {
    return tolerance_of(c.dtype, of_aten) * (of_aten ? kAtenLogprobFactor : 1);
  }
  return of_aten || c.dtype == at::kDouble ? tolerance_of(c.dtype, of_aten)
                                           : tolerance_of(at::kFloat, false);
}

void replace_by_forward(const Case& c, const InputSet& inputs) {
  for_each_piece(c.shape,
                 [&](const Part& part) { part(inputs.scores).copy_(forward(c, inputs, part)); });
}

}  // namespace warpfuse::host::bench
