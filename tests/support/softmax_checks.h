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

/// A NaN or an infinity in a row of `x` [rows, columns] changes that row alone, wherever it is (-1:
/// in all columns). `run` gives the result of the tensor as it is then.
template <typename Run>
void check_planted(const SoftmaxOperator& op, const at::Tensor& x,
                   const std::vector<int64_t>& columns, const Run& run) {
  const at::Tensor clean = x.clone(), clean_output = run().clone();
  for (const double planted : {kNaN, kInf, -kInf}) {
    for (const int64_t row : {int64_t{0}, x.size(0) / 2, x.size(0) - 1}) {
      for (const int64_t column : columns) {
        INFO(op.name << " of " << describe(x) << ", " << planted << " at " << row << ", "
                     << column);
        (column < 0 ? x[row] : x[row][column]).fill_(planted);
        const at::Tensor output = run();
        CHECK(mismatch(output[row], op.expected(x[row], -1)) == "");
        output[row].copy_(clean_output[row]);
        CHECK(bit_mismatch(output, clean_output) == "");
        x.copy_(clean);
      }
    }
  }
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
