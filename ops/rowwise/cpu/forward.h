#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rowwise/cpu/lanes.h"
#include "rowwise/cpu/row_part.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// softmax or log_softmax of an element from x - max and from what its row's sum comes to.
template <bool kLog>
struct SoftmaxRule {
  template <typename V>
  static V divisor(const V& sum) {
    return kLog ? sum.log() : V(1) / sum;
  }
  template <typename V>
  static V result(const V& shifted, const V& divisor) {
    return kLog ? shifted - divisor : exponential(shifted) * divisor;
  }
};

/// The sum of exp(x - maximum) over a row of `count` elements, where x(i, n) gives a pack of it.
/// kKept: the terms are kept in `powers`, which has room for whole packs. What is read after this
/// row begins at `next`: fetched now, it need not be waited for.
template <typename T, bool kKept, typename Row>
C10_ALWAYS_INLINE Compute<T> sum_of_powers(const Row& x, Compute<T> maximum, Compute<T>* powers,
                                           int64_t count, const T* next) {
  const Pack<T> max(maximum);
  return sum_of<T>(count, [&](int64_t i, int64_t n) {
    __builtin_prefetch(next + i);
    const Pack<T> power = exponential(x(i, n) - max);
    if constexpr (kKept) {
      power.store(powers + i);
    }
    return power;
  });
}

/// y = softmax(x) of one row of `count` elements, where `maximum` is the largest of them. scratch
/// has room for whole packs; `next` is what is read after this row. Returns the sum of exp(x -
/// maximum): a row is sound when it is positive and finite.
template <typename T, typename Row>
Compute<T> softmax_row(const Row& x, Compute<T> maximum, T* y, Compute<T>* scratch, int64_t count,
                       bool streamed, const T* next) {
  const Compute<T> sum = sum_of_powers<T, true>(x, maximum, scratch, count, next);
  const Pack<T> reciprocal(1 / sum);
  transform(y, count, streamed,
            [&](int64_t i, int64_t) { return Pack<T>::loadu(scratch + i) * reciprocal; });
  return sum;
}

/// y = softmax(x) or log_softmax(x) of up to kRowGroup rows, one after the other in memory. They
/// take each step together: a short row's steps wait for each other, those of other rows do not.
/// scratch is rows * (columns + kPackSize) long (for log_softmax unused). more: as many rows
/// follow.
template <typename T, bool kLog>
void softmax_rows(const T* x, T* y, int64_t rows, int64_t columns, Compute<T>* scratch,
                  bool streamed, bool more) {
  using C = Compute<T>;
  using P = Pack<T>;
  const int64_t scratch_stride = columns + kPackSize<T>;
  C max[kRowGroup];
  C divisor[kRowGroup];
  const auto row_of = [&](int64_t row) {
    return [from = x + row * columns](int64_t i, int64_t n) { return load(from + i, n); };
  };
  for (int64_t row = 0; row < rows; ++row) {
    max[row] = max_of<T>(columns, row_of(row));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T* next = x + (more ? row + rows : row) * columns;
    divisor[row] = sum_of_powers<T, !kLog>(row_of(row), max[row], scratch + row * scratch_stride,
                                           columns, next);
  }
  for (int64_t row = 0; row < rows; row += Vectorized<C>::size()) {
    const auto n = static_cast<int>(std::min<int64_t>(rows - row, Vectorized<C>::size()));
    SoftmaxRule<kLog>::divisor(Vectorized<C>::loadu(divisor + row, n)).store(divisor + row, n);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const P row_divisor(divisor[row]);
    if constexpr (kLog) {
      const P row_max(max[row]);
      transform(y + row * columns, columns, streamed,
                [&, from = row_of(row)](int64_t i, int64_t n) {
                  return from(i, n) - row_max - row_divisor;
                });
    } else {
      transform(y + row * columns, columns, streamed,
                [&, from = scratch + row * scratch_stride](int64_t i, int64_t) {
                  return P::loadu(from + i) * row_divisor;
                });
    }
  }
}

/// The maximum and the sum of a part of a row that is too long to be kept in a cache.
template <typename T>
RowPart softmax_part(const T* x, int64_t count) {
  using C = Compute<T>;
  const auto row = [&](int64_t i, int64_t n) { return load(x + i, n); };
  const C max = max_of<T>(count, row);
  const C finite = max == kLowest<C> ? C(0) : max;  // of -inf alone: a sum of 0, or NaN
  return {max, sum_of_powers<T, false>(row, finite, nullptr, count, x)};
}

/// The results of a part, when its whole row has been summed up.
template <typename T, bool kLog>
void softmax_part_results(const T* x, T* y, int64_t count, const RowPart& row, bool streamed) {
  using C = Compute<T>;
  const Pack<T> max(static_cast<C>(row.max));
  const Pack<T> divisor(static_cast<C>(kLog ? std::log(row.sum) : 1 / row.sum));
  transform(y, count, streamed, [&](int64_t i, int64_t n) {
    return SoftmaxRule<kLog>::result(load(x + i, n) - max, divisor);
  });
}

/// The same along a dimension that is not the last. softmax is multiplied by `scale` before it is
/// rounded.
template <typename T, bool kLog, int kPacks>
void softmax_lanes(const T* x, T* y, const Lanes<T, kPacks>& lanes, Compute<T> scale = 1) {
  using C = Compute<T>;
  using P = Pack<T>;
  const auto combine = [](const P& a, const P& b) { return larger(a, b); };
  const auto max =
      lanes.fold(P(kLowest<C>), combine, [&](int64_t at, int) { return lanes.load(x + at); });
  auto divisor =
      lanes.sum([&](int64_t at, int pack) { return exponential(lanes.load(x + at) - max[pack]); });
  for (P& pack : divisor) {
    pack = SoftmaxRule<kLog>::divisor(pack);
    if constexpr (!kLog) {
      pack = pack * P(scale);
    }
  }
  lanes.transform(y, [&](int64_t at, int pack) {
    return SoftmaxRule<kLog>::result(lanes.load(x + at) - max[pack], divisor[pack]);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
