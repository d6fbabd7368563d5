#include "runtime/score/difference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace warpfuse::host {
namespace {

// Elements that are compared at a time, since they take several times as much memory as doubles.
constexpr int64_t kBlock = 16'777'216;

// std::max would drop a NaN on one side.
double worse(double a, double b) { return std::isnan(b) || b > a ? b : a; }

double smallest_normal(c10::ScalarType dtype) {
  return dtype == at::kHalf ? double{std::numeric_limits<c10::Half>::min()}
                            : double{std::numeric_limits<float>::min()};
}

// Of two tensors [rows, columns] that are not empty.
Difference difference_of_rows(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor a = value.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor b = reference.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor zero = at::zeros_like(a);
  const at::Tensor distance = at::where(a.eq(b), zero, (a - b).abs());  // inf - inf would be NaN
  const at::Tensor magnitude = at::where(b.isfinite(), b.abs(), zero).amax(1);
  const double least =
      std::max(smallest_normal(value.scalar_type()), smallest_normal(reference.scalar_type()));
  const at::Tensor relative = distance.amax(1) / magnitude.clamp_min(least);
  // amax() gives NaN if there is one; abs() drops its sign, which would be printed.
  return {std::abs(distance.max().item<double>()), std::abs(relative.max().item<double>())};
}

}  // namespace

void Difference::include(const Difference& other) {
  largest = std::isnan(largest) ? largest : worse(largest, other.largest);
  relative = std::isnan(relative) ? relative : worse(relative, other.relative);
}

Difference difference_between(const at::Tensor& value, const at::Tensor& reference) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.sizes() != reference.sizes()) {
    return {kInfinity, kInfinity};
  }
  if (value.numel() == 0) {
    return {};
  }
  const int64_t columns = value.dim() == 0 ? 1 : value.size(-1);
  const int64_t block = std::max<int64_t>(kBlock / columns, 1);
  const std::vector<at::Tensor> values = value.reshape({-1, columns}).split(block);
  const std::vector<at::Tensor> references = reference.reshape({-1, columns}).split(block);
  Difference difference;
  for (size_t i = 0; i < values.size(); ++i) {
    difference.include(difference_of_rows(values[i], references[i]));
  }
  return difference;
}

double default_tolerance(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 1e-2;
    case at::kBFloat16:
      return 8e-2;
    case at::kDouble:
      return 1e-9;
    default:
      return 5e-5;
  }
}

}  // namespace warpfuse::host
