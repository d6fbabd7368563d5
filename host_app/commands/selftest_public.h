#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <span>
#include <string_view>

namespace warpfuse::host {

// What `warpfuse selftest` checks beside the benchmark's rows: public operators as a program calls
// them.

// An operator and ATen's way to the same, both of x [3, 4, 5, 6].
struct Gradient {
  std::string_view name;
  at::Tensor (*plugin)(const at::Tensor& x);
  at::Tensor (*aten)(const at::Tensor& x);
};

// All that have one.
std::span<const Gradient> gradients();

// The largest difference of the two gradients in float64, through autograd.
double gradient_error(const Gradient& gradient, c10::Device device);

// Of 130 sampled tokens: greedy ones that are not the first largest logit, and drawn ones that
// top_k had ruled out.
int64_t wrong_tokens(c10::ScalarType dtype, c10::Device device);

}  // namespace warpfuse::host
