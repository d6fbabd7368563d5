#include "runtime/difference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace warpfuse::host {

void Difference::include(const Difference& other) {
  // std::max would drop a NaN on one side.
  if (std::isnan(other.largest) || other.largest > largest) {
    largest = other.largest;
  }
  reference_magnitude = std::max(reference_magnitude, other.reference_magnitude);
}

double Difference::allowed(double tolerance) const {
  return tolerance * std::max(1.0, reference_magnitude);
}

Difference difference_between(const at::Tensor& value, const at::Tensor& reference) {
  if (value.sizes() != reference.sizes()) {
    return {std::numeric_limits<double>::infinity(), 0};
  }
  if (value.numel() == 0) {
    return {};
  }
  const at::Tensor a = value.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor b = reference.to(at::Device(at::kCPU), at::kDouble);
  const at::Tensor zero = at::zeros_like(a);
  const at::Tensor distance = at::where(a.eq(b), zero, (a - b).abs());  // inf - inf would be NaN
  const at::Tensor magnitude = at::where(b.isfinite(), b.abs(), zero);
  // max() gives NaN if there is one; abs() drops its sign, which would be printed.
  return {std::abs(distance.max().item<double>()), magnitude.max().item<double>()};
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
