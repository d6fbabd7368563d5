#pragma once

// Each function returns an empty string when all is well, else where it first goes wrong and how:
//
//   CHECK(mismatch(output, expected) == "");

#include <ATen/ATen.h>

#include <string>

#include "reference.h"

/// Compares a result with what is expected, on the device where the expectation lies:
///   NaN, +inf and -inf exactly where they are expected; exact zeros where the expected value is 0;
///   float32: within the expectation's own error times 2^-24, float64 times 2^-50, with an absolute
///     floor where the type's range ends (1e-37, 1e-307);
///   float16, bfloat16: within 1 ulp of the rounded expectation (2^-24 for float16's subnormals),
///   or
///     the error of the computation in float32 where that is more.
/// `slack` multiplies the first error.
std::string mismatch(const at::Tensor& output, const Expected& expected, double slack = 1.0);

/// Compares the bits of two tensors of equal dtype and shape. Two NaN are equal.
std::string bit_mismatch(const at::Tensor& a, const at::Tensor& b);

/// Compares with another implementation's result: NaN and infinities alike, the rest within the
/// roundings of two implementations of the output's dtype, or `floor`.
std::string aten_mismatch(const at::Tensor& output, const at::Tensor& aten, double floor = 0.0);

/// Compares float64 tensors within `relative` of the larger of their largest values (and 1).
std::string far_apart(const at::Tensor& a, const at::Tensor& b, double relative);
