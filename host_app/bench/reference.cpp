#include "bench/reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/logprob.h"
#include "bench/rules.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kPieceElements = int64_t{16} * 1024 * 1024;  // 128 MiB in double precision
constexpr double kAtenFactor = 8;
constexpr double kAtenLogprobFactor = 3;

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

at::Tensor forward(const Case& c, const InputSet& inputs, const Part& part) {
  at::Tensor x = part(inputs.scores).to(at::kDouble);
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
  const at::Tensor y = part(inputs.output).to(at::kDouble);
  const at::Tensor g = part(inputs.grad_output).to(at::kDouble);
  if (c.op == Operator::log_softmax) {
    const at::Tensor p = y.exp();
    return {g - p * g.sum(dim, true), g.abs() + p * g.abs().sum(dim, true)};
  }
  const at::Tensor gy = g * y;
  const double scale = c.op == Operator::softmax ? 1.0 : kScale;
  return {y * (g - gy.sum(dim, true)) * scale, y * (g.abs() + gy.abs().sum(dim, true)) * scale};
}

double smallest_difference(c10::ScalarType dtype) {
  return std::ldexp(1.0, dtype == at::kHalf ? -24 : -126);
}

}  // namespace

double error_of(const Case& c, const InputSet& inputs, const at::Tensor& value) {
  if (c.op == Operator::fused_logprob) {
    return logprob_error(c, inputs, value);
  }
  if (value.sizes() != at::IntArrayRef(c.shape.sizes) || value.scalar_type() != c.dtype) {
    return std::numeric_limits<double>::infinity();
  }
  double worst = 0;
  for_each_piece(c.shape, [&](const Part& part) {
    const Expected expected = expected_of(c, inputs, part);
    const at::Tensor distance = (part(value).to(at::kDouble) - expected.value).abs();
    const at::Tensor error = at::where(distance.le(smallest_difference(c.dtype)),
                                       at::zeros_like(distance), distance / expected.size);
    const auto largest = error.max().item<double>();  // NaN if there is one
    worst = std::isnan(worst) || largest <= worst ? worst : largest;
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
  if (c.op != Operator::fused_logprob) {
    return tolerance_of(c.dtype, of_aten);
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
