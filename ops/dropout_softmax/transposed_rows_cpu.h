#pragma once

#include <cstdint>

#include "dropout_softmax/dropout_softmax.h"
#include "rowwise/cpu/dropout_factors.h"
#include "rowwise/cpu/transposed.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// The forward of short rows.
template <typename T, bool kSoftmaxFirst>
void forward_transposed(const DropoutSoftmaxArguments& arguments, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using P = Pack<T>;
  constexpr int64_t kRows = TransposedBlock<T>::kRows;
  const int64_t columns = arguments.layout.columns, size = columns * kRows;
  TransposedFactors<T, true> factors(arguments, columns);
  TransposedBlock<T> values(columns);
  TransposedBlock<T, C> powers(columns), statistics(2);
  for_row_groups(begin, end, kRows, [&](int64_t row, int64_t rows) {
    values.read(static_cast<const T*>(arguments.input) + row * columns, rows);
    factors.draw(arguments, row, rows);
    for (int64_t lane = 0; lane < rows; lane += kPackSize<T>) {
      P max(kNegativeInfinity<C>), sum(C(0));
      for (int64_t at = lane; at < size; at += kRows) {
        const P value = load(values.data() + at, kPackSize<T>);
        const P x = kSoftmaxFirst ? value : factors.apply(value, at);
        x.store(powers.data() + at);
        max = larger(max, x);
      }
      for (int64_t at = lane; at < size; at += kRows) {
        const P power = exponential(P::loadu(powers.data() + at) - max);
        power.store(powers.data() + at);
        sum = sum + power;
      }
      const P reciprocal = P(C(1)) / sum;
      for (int64_t at = lane; at < size; at += kRows) {
        const P y = P::loadu(powers.data() + at) * reciprocal;
        store<T>(kSoftmaxFirst ? factors.apply(y, at) : y, values.data() + at, kPackSize<T>);
      }
      if constexpr (kSoftmaxFirst) {
        max.store(statistics.data() + lane);
        sum.log().store(statistics.data() + kRows + lane);
      }
    }
    values.write(static_cast<T*>(arguments.output) + row * columns, rows);
    if constexpr (kSoftmaxFirst) {
      statistics.write(static_cast<C*>(arguments.statistics) + 2 * row, rows);
    }
  });
}

/// The backward of short rows.
template <typename T, bool kSoftmaxFirst>
void backward_transposed(const DropoutSoftmaxBackwardArguments& arguments, int64_t begin,
                         int64_t end) {
  using C = Compute<T>;
  using P = Pack<T>;
  constexpr int64_t kRows = TransposedBlock<T>::kRows;
  const int64_t columns = arguments.layout.columns, size = columns * kRows;
  TransposedFactors<T, true> factors(arguments, columns);
  TransposedBlock<T> gradients(columns), saved(columns);
  TransposedBlock<T, C> probabilities(columns), statistics(2);
  for_row_groups(begin, end, kRows, [&](int64_t row, int64_t rows) {
    gradients.read(static_cast<const T*>(arguments.grad_output) + row * columns, rows);
    saved.read(static_cast<const T*>(arguments.saved) + row * columns, rows);
    factors.draw(arguments, row, rows);
    if constexpr (kSoftmaxFirst) {
      statistics.read(static_cast<const C*>(arguments.statistics) + 2 * row, rows);
    }
    for (int64_t lane = 0; lane < rows; lane += kPackSize<T>) {
      const auto g = [&](int64_t at) C10_ALWAYS_INLINE_ATTRIBUTE {
        const P gradient = load(gradients.data() + at, kPackSize<T>);
        return kSoftmaxFirst ? factors.apply(gradient, at) : gradient;
      };
      P sum(C(0));
      for (int64_t at = lane; at < size; at += kRows) {
        P y = load(saved.data() + at, kPackSize<T>);
        if constexpr (kSoftmaxFirst) {
          y = exponential(y - P::loadu(statistics.data() + lane) -
                          P::loadu(statistics.data() + kRows + lane));
        }
        y.store(probabilities.data() + at);
        sum = sum + y * g(at);
      }
      for (int64_t at = lane; at < size; at += kRows) {
        const P result = P::loadu(probabilities.data() + at) * (g(at) - sum);
        store<T>(kSoftmaxFirst ? result : factors.apply(result, at), gradients.data() + at,
                 kPackSize<T>);
      }
    }
    gradients.write(static_cast<T*>(arguments.grad_input) + row * columns, rows);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
