#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace warpfuse::host {

// How far a tensor is from its reference.
struct Difference {
  double largest = 0;              // |value - reference|; NaN when either holds a NaN
  double reference_magnitude = 0;  // the largest finite |reference|

  // Of the two, elementwise the worse.
  void include(const Difference& other);
  // tolerance * max(1, reference_magnitude)
  double allowed(double tolerance) const;
  // Never true for NaN.
  bool within(double tolerance) const { return largest <= allowed(tolerance); }
};

// In double precision. Equal infinities do not differ; tensors of unequal shape differ by infinity.
Difference difference_between(const at::Tensor& value, const at::Tensor& reference);

// What two correct computations in this dtype may differ by, relative to the largest output.
double default_tolerance(c10::ScalarType dtype);

}  // namespace warpfuse::host
