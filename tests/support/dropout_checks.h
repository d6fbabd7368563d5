#pragma once

// The common checks of the tests of dropout.

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "compare.h"
#include "dropout.h"
#include "inputs.h"
#include "masks.h"
#include "poison.h"

/// Both orders.
inline const std::vector<DropoutCall> kOrders = {{.softmax_first = false}, {.softmax_first = true}};

inline DropoutCall with(DropoutCall call, int64_t dim, double p) {
  call.dim = dim;
  call.p = p;
  return call;
}

/// "" where every element is the one of the dtype that is nearest to `exact`, as one rounding makes
/// it of a result whose own error is far below that; else where not.
inline std::string rounded_once_mismatch(const at::Tensor& output, const at::Tensor& exact) {
  const at::ScalarType dtype = output.scalar_type();
  const auto nearest = [&](double error) { return (exact * (1 + error)).to(dtype); };
  const double error = std::ldexp(1.0, -16);
  return bit_mismatch(output, at::minimum(at::maximum(output, nearest(-error)), nearest(error)));
}

/// softmax_dropout in half precision: one rounding, whatever the dimension.
inline void check_rounded_once(at::IntArrayRef shape, int64_t dim, at::ScalarType dtype,
                               const at::Device& device) {
  const at::Tensor x = random_tensor(shape, dtype, device);
  const at::Tensor rng = rng_of(3, 8, device);
  const DropoutCall call{.dim = dim, .p = 0.3, .softmax_first = true};
  INFO(describe(x) << ", " << describe(call));
  const at::Tensor factors = plain_factors(shape, call.p, rng).to(device);
  const at::Tensor exact = at::softmax(x.to(at::kDouble), dim) * factors;
  CHECK(rounded_once_mismatch(std::get<0>(dropout_softmax(x, call, rng)), exact) == "");
}

/// Forward and backward with an rng against the reference, on poisoned memory. No other kernel
/// touches what they read and write (test_cuda_sanitize.cpp).
inline void check_dropout(const at::Tensor& x, const DropoutCall& call) {
  INFO(describe(x) << ", " << describe(call));
  const at::Tensor rng = rng_of(2026, 44, x.device());
  const at::Tensor factors = plain_factors(x.sizes(), call.p, rng);
  const at::Tensor host_grad = random_tensor(x.sizes(), x.scalar_type());
  const at::Tensor grad = host_grad.to(x.device());
  const Poison poison;
  const auto [output, statistics, used] = dropout_softmax(x, call, rng);
  CHECK(output.scalar_type() == x.scalar_type());
  CHECK(output.is_contiguous());
  CHECK(used.cpu().equal(rng.cpu()));
  CHECK(!used.is_alias_of(rng));
  CHECK(mismatch(output, expected_dropout_softmax(x.cpu(), factors, call)) == "");
  const at::Tensor saved = call.softmax_first ? x : output;
  const at::Tensor got = dropout_softmax_backward(grad, saved, statistics, used, call);
  CHECK(got.scalar_type() == x.scalar_type());
  CHECK(mismatch(got, expected_dropout_softmax_backward(host_grad, saved.cpu(), factors, call)) ==
        "");
}

/// The same of attention.
inline void check_masked_dropout(const at::Tensor& scores, const MaskArguments& arguments,
                                 double p) {
  INFO(describe(scores) << ", " << describe(arguments) << ", p = " << p);
  const at::Tensor rng = rng_of(-77, 1234567, scores.device());
  const at::Tensor factors = plain_factors(scores.sizes(), p, rng);
  const at::Tensor host_grad = random_tensor(scores.sizes(), scores.scalar_type());
  const at::Tensor grad = host_grad.to(scores.device());
  const MaskArguments host = to(at::kCPU, arguments);
  const Poison poison;
  const auto [output, statistics, used] = masked_dropout(scores, arguments, p, rng);
  CHECK(used.cpu().equal(rng.cpu()));
  CHECK(output.is_contiguous());
  CHECK(mismatch(output, expected_masked_dropout(scores.cpu(), factors, host)) == "");
  CHECK(mismatch(masked_dropout_backward(grad, scores, statistics, used, arguments, p),
                 expected_masked_dropout_backward(host_grad, scores.cpu(), factors, host)) == "");
}
