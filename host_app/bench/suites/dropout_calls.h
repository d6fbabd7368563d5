#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "bench/suites/inputs.h"

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

// The check of a result. `kept` draws the random numbers of a forward once more; a backward's are
// the set's. `expected_of` gives a part in double precision.
template <typename Set>
std::function<double(const Outputs&)> dropout_error(
    const Case& c, const Sets<Set>& sets, at::Tensor (*kept)(const Case&, const Set&),
    Expected (*expected_of)(const Case&, const Set&, const at::Tensor&, const Part&)) {
  return against(sets, [=](const Set& in, const Outputs& outputs) {
    rewind_generators();
    const at::Tensor keep = c.is_forward() ? kept(c, in) : in.keep;
    return error_by_pieces(
        c, outputs.result, [&](const Part& part) { return expected_of(c, in, keep, part); },
        c.is_forward() ? 2 : 1 + kMaxGradient / (1 - kDropoutP));
  });
}

}  // namespace warpfuse::host::bench
