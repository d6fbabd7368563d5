#pragma once

#include "common/cascade_sum.h"
#include "rowwise/cuda/two_pass.cuh"
#include "rowwise/layout.h"

namespace warpfuse::cuda {

// Steps of the ladder that no plan takes: they run by an algorithm's name alone.

/// One thread a row, three reads of each element.
template <typename T, bool kLog>
__global__ void naive_kernel(const T* input, T* output, RowLayout layout) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= layout.outer * layout.inner) {
    return;
  }
  const int64_t offset = row / layout.inner * layout.columns * layout.inner + row % layout.inner;
  const T* x = input + offset;
  T* y = output + offset;
  C max = negative_infinity<C>();
  for (int64_t j = 0; j < layout.columns; ++j) {
    max = larger(max, to_compute(x[j * layout.inner]));
  }
  CascadeSum<C> sum(C(0));
  for (int64_t j = 0; j < layout.columns; ++j) {
    sum.add(exponential<T>(to_compute(x[j * layout.inner]) - max));
  }
  const C factor = kLog ? logarithm(sum.value() / kExponentialUnit<T>) : C(1) / sum.value();
  for (int64_t j = 0; j < layout.columns; ++j) {
    const C shifted = to_compute(x[j * layout.inner]) - max;
    y[j * layout.inner] =
        from_compute<T>(kLog ? shifted - factor : exponential<T>(shifted) * factor);
  }
}

/// A warp a row, two reads of each element: rows that do not fit the registers of a warp.
template <RowFunction F>
__global__ void __launch_bounds__(256) warp_two_pass_kernel(F function, int64_t steps) {
  wait_for_previous_kernel();
  Warp group;
  const int64_t step = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (step >= steps) {
    return;
  }
  auto row = function.row(step, NoWait());
  const PackRange all(row.packed, 0, 1);
  const auto accumulator = read_range(function, row, all, group);
  write_range(function, row, all, group,
              function.finish(row, function.total(row, group, accumulator)));
}

}  // namespace warpfuse::cuda
