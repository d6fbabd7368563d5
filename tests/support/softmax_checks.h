#pragma once

// The common checks of the softmax and log_softmax tests.

#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "catch.h"
#include "compare.h"
#include "inputs.h"
#include "operators.h"
#include "poison.h"

/// One call on poisoned memory against the reference and against ATen.
inline void check_softmax(const SoftmaxOperator& op, const at::Tensor& x, int64_t dim) {
  INFO(op.name << " of " << describe(x) << " over dim " << dim);
  const Poison poison;
  const at::Tensor output = op(x, dim);
  CHECK(output.scalar_type() == x.scalar_type());
  CHECK(output.is_contiguous());
  CHECK(mismatch(output, op.expected(x, dim)) == "");
  // ATen rounds float16's and bfloat16's log_softmax more than once; in float32 it does not. A
  // logarithm near 0 has the absolute error of its sum. Probabilities below the smallest normal
  // float may be 0: so are the exponentials of a warp far from the row's maximum.
  const bool narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::Tensor aten = op.aten(x, dim, narrow ? at::kFloat : x.scalar_type());
  CHECK(aten_mismatch(output, aten.to(x.scalar_type()),
                      !op.log                          ? std::numeric_limits<float>::min()
                      : x.scalar_type() == at::kDouble ? 1e-13
                                                       : 8e-6) == "");
}

/// Both operators, every dtype, every shape.
inline void sweep_softmax(const at::Device& device, const std::vector<std::vector<int64_t>>& shapes,
                          int64_t dim) {
  for (const SoftmaxOperator& op : kSoftmaxOperators) {
    for (const at::ScalarType dtype : kDtypes) {
      for (const std::vector<int64_t>& shape : shapes) {
        check_softmax(op, random_with_outliers(shape, dtype, device), dim);
      }
    }
  }
}
