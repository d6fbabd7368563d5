#pragma once

// The expectations of reference.h once more, by ATen's float64 operators on the device of the
// input: for tensors that plain loops take too long for. Inputs are finite, but for -inf in an
// additive mask. The tests of test_support.cpp hold the two against each other.

#include "reference.h"

Expected tensor_softmax(const at::Tensor& self, int64_t dim, bool log);
Expected tensor_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                 int64_t dim, bool log);
Expected tensor_masked_softmax(const at::Tensor& scores, const MaskArguments& arguments);
Expected tensor_masked_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output,
                                        const MaskArguments& arguments);
