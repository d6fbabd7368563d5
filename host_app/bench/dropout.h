#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/inputs.h"
#include "bench/variants.h"

namespace warpfuse::host::bench {

// dropout_softmax and softmax_dropout in the benchmark, in training and with this probability.
inline constexpr double kDropoutP = 0.2;

// Whether it is one of the two.
bool has_dropout(Operator op);

// What a backward takes besides output and gradient: random numbers, other ones for each seed,
// which elements they keep, and for softmax_dropout the scores and the plugin's statistics of them.
// The scores are in `set.output`.
void add_dropout_state(InputSet& set, const Case& c, int64_t seed);

// The row whose forward gives `output`, as ATen's backward takes it: softmax_dropout's is the
// softmax before dropout, other rows' their own result.
Case saved_forward(const Case& c);

// "warpfuse"; "aten", native_dropout and softmax in their order, with the backward kernels that
// autograd calls for them; and "softmax", the plugin's softmax alone on the same tensors, so that
// the difference is what dropout costs.
//
// A forward draws its random numbers itself. The public operator is timed and checked: for the
// check the generator is rewound before it, and once more before the private operator, which then
// draws the same and says what it drew.
std::vector<Variant> dropout_variants(const Case& c);

// The plugin's operators that those call.
std::vector<std::string> dropout_operators(const Case& c);

// Parts that linear_dropout_softmax shares.

// Which elements of a tensor the random numbers keep.
at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng);

// The plugin's backward; `statistics` has no elements where dropout came first.
at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first);

// ATen's.
at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep);

}  // namespace warpfuse::host::bench
