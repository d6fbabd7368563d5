#pragma once

#include <cmath>

#include "bench/suites/inputs.h"

namespace warpfuse::host::bench {

// A linear layer of rows x in x out.
struct LinearSizes {
  int64_t rows, in, out;

  explicit LinearSizes(const Shape& shape)
      : rows(shape.sizes[0]), in(shape.sizes[1]), out(shape.sizes[2]) {}
};

// Input, weight and bias, so that the results are spread as much as scores are elsewhere.
template <typename Set>
void add_linear(std::vector<Set>& sets, const LinearSizes& sizes, const at::TensorOptions& options,
                const Setup& setup) {
  const double spread = 1 / std::sqrt(static_cast<double>(sizes.in));
  add_tensors(sets, &Set::input, {sizes.rows, sizes.in}, options, setup.scores);
  add_tensors(sets, &Set::weight, {sizes.out, sizes.in}, options,
              [spread](const at::Tensor& weight) { weight.normal_(0, spread); });
  add_tensors(sets, &Set::bias, {sizes.out}, options);
}

}  // namespace warpfuse::host::bench
