#pragma once

#include <ATen/core/Tensor.h>

namespace warpfuse::host::bench {

// Parts of the benchmarks with dropout: in training, with this probability.
inline constexpr double kDropoutP = 0.2;

// Which elements of a tensor the plugin's random numbers keep.
at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng);

// What dropout multiplies elements by, in double precision.
at::Tensor dropout_factors(const at::Tensor& keep);

// The plugin's backward; `statistics` has no elements where dropout came first.
at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first);

// ATen's.
at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep);

}  // namespace warpfuse::host::bench
