#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace warpfuse::host {

// The distance of a tensor from its reference. A row lies along the last dimension.
struct Difference {
  double largest = 0;   // |value - reference|; NaN when either holds a NaN
  double relative = 0;  // the same over the largest finite |reference| of its row, the worst row's

  // The worse of both, each for itself.
  void include(const Difference& other);
  // Never true for NaN.
  bool within(double tolerance) const { return relative <= tolerance; }
};

// In double precision. Equal infinities do not differ; tensors of unequal shape differ by infinity.
// A row's magnitude counts as at least the smallest normal number of the coarser dtype, below which
// that dtype has no digits left.
Difference difference_between(const at::Tensor& value, const at::Tensor& reference);

// The relative difference that two correct computations in this dtype may have.
double default_tolerance(c10::ScalarType dtype);

}  // namespace warpfuse::host
