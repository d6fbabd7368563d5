#pragma once

#include <ATen/core/Tensor.h>

#include "bench/case.h"
#include "bench/inputs.h"

namespace warpfuse::host::bench {

// The reference is ATen's softmax in double precision, with the scores scaled and the hidden keys
// at -inf before it, and at zero after it. It is computed piece by piece on the inputs' device.
//
// The error of an element is |value - reference| over the size of the terms that it is made of, so
// that rounding gives about the same figure everywhere:
//
//   softmax, forward        reference
//   log_softmax, forward    1 + |reference|
//   softmax, backward       scale * output * (|g| + sum |g * output|)
//   log_softmax, backward   |g| + exp(output) * sum |g|
//
//   dropout_softmax         as softmax, with the scores times k = keep / (1 - p) before it, and the
//                           gradient times k after it
//   softmax_dropout         as softmax, with the result, or the gradient before it, times k
//
//   fused_logprob           see logprob.h
//   linear_dropout_softmax  see linear_dropout.h
//
// A difference below the dtype's smallest number (float16: 2^-24, others 2^-126) does not count;
// with dropout, which may be rounded before and after, nor does one of twice that.

double smallest_difference(c10::ScalarType dtype);

// The largest of |value - expected| / size, where the difference is above `ignored`; NaN where
// there is one.
double largest_error(const at::Tensor& value, const at::Tensor& expected, const at::Tensor& size,
                     double ignored);

// The larger of two errors; NaN if either is.
double worse(double one, double other);

// The largest error of all elements; NaN where `value` holds one, infinite for a wrong shape.
double error_of(const Case& c, const InputSet& inputs, const at::Tensor& value);

// What a right result may have: a little more than one rounding, float64 1e-12, float32 2e-5,
// float16 7e-4, bfloat16 5e-3; eight times that for ATen, which rounds between its kernels.
double tolerance_of(c10::ScalarType dtype, bool of_aten);

// The same for a row. fused_logprob's forward is float32 for a 16-bit dtype too. ATen takes the
// gradient from rounded log-probabilities, so that it is wrong by as much as they are: three times
// more is allowed it there. In a training step three results are rounded one after the other, and
// TF32 has the precision of float16. With dropout and another dim than the last the plugin rounds
// between two kernels, as ATen does; softmax_dropout's backward rounds twice, the softmax as a
// saved one would be, and the gradient.
double tolerance_of(const Case& c, bool of_aten);

// Overwrites `inputs.scores` by the forward's result for them, rounded to the dtype.
void replace_by_forward(const Case& c, const InputSet& inputs);

}  // namespace warpfuse::host::bench
