#pragma once

#include <cstdint>

#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// y = softmax(x) or log_softmax(x) of one row of `count` elements. scratch holds `count` elements
/// and may be x itself. Returns the sum of exp(x - max x): a row is sound when it is positive and
/// finite.
template <typename T, bool kLog>
Compute<T> softmax_row(const Compute<T>* x, T* y, Compute<T>* scratch, int64_t count) {
  using C = Compute<T>;
  using Vec = at::vec::Vectorized<C>;
  C* result = scratch;  // the row before its rounding to T
  if constexpr (std::is_same_v<T, C>) {
    result = y;
  }
  const Vec max(max_of(x, count));
  C sum;
  if constexpr (kLog) {
    sum = sum_of<C>(count, [&](int64_t i, int64_t n) { return (load(x + i, n) - max).exp(); });
    const Vec log_sum(std::log(sum));
    transform(result, count, [&](int64_t i, int64_t n) { return load(x + i, n) - max - log_sum; });
  } else {
    sum = sum_of<C>(count, [&](int64_t i, int64_t n) {
      const Vec exponential = (load(x + i, n) - max).exp();
      exponential.store(result + i, n);
      return exponential;
    });
    const Vec reciprocal(C(1) / sum);
    transform(result, count,
              [&](int64_t i, int64_t n) { return load(result + i, n) * reciprocal; });
  }
  if constexpr (!std::is_same_v<T, C>) {
    convert(result, y, count);
  }
  return sum;
}

/// The same along a dimension that is not the last: `lanes` neighbouring rows at once, whose
/// elements lie `stride` apart. lanes is at most the vector's size.
template <typename T, bool kLog>
void softmax_lanes(const T* x, T* y, int64_t columns, int64_t stride, int64_t lanes) {
  using C = Compute<T>;
  using Vec = at::vec::Vectorized<C>;
  const auto at_column = [&](int64_t j) {
    if constexpr (std::is_same_v<T, C>) {
      return load(x + j * stride, lanes);
    } else {
      C values[Vec::size()] = {};
      convert(x + j * stride, values, lanes);
      return Vec::loadu(values);
    }
  };
  Vec max(kLowest<C>);
  for (int64_t j = 0; j < columns; ++j) {
    max = at::vec::maximum(max, at_column(j));
  }
  CascadeSum<Vec> sum(Vec(C(0)));
  for (int64_t j = 0; j < columns; ++j) {
    sum.add((at_column(j) - max).exp());
  }
  const Vec last = kLog ? sum.value().log() : Vec(C(1)) / sum.value();
  for (int64_t j = 0; j < columns; ++j) {
    const Vec shifted = at_column(j) - max;
    const Vec result = kLog ? shifted - last : shifted.exp() * last;
    if constexpr (std::is_same_v<T, C>) {
      result.store(y + j * stride, lanes);
    } else {
      C values[Vec::size()];
      result.store(values);
      convert(values, y + j * stride, lanes);
    }
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
