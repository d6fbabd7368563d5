#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rowwise/cpu/strided.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// softmax or log_softmax of an element from x - max and its row's divisor.
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

/// Where the exponentials of a row wait for their sum: in its result y, if that can hold them and
/// stays in the caches, else in `scratch`. Short rows are scaled from there faster; a row x that is
/// overwritten by its result is read twice at its end.
template <typename T>
Compute<T>* powers_of([[maybe_unused]] const T* x, [[maybe_unused]] T* y, Compute<T>* scratch,
                      [[maybe_unused]] int64_t count, [[maybe_unused]] bool streamed) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    if (x != y && !streamed && count * static_cast<int64_t>(sizeof(T)) >= kForwardGroupBytes) {
      return y;
    }
  }
  return scratch;
}

/// y = map(powers, i), where `powers` may be y.
template <typename T, typename Map>
C10_ALWAYS_INLINE void scale_powers(const Compute<T>* powers, T* y, int64_t count, bool streamed,
                                    const Map& map) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    if (powers == y) {
      int64_t i = 0;
      for (; i + kPackSize<T> <= count; i += kPackSize<T>) {
        store<T>(map(Pack<T>::loadu(y + i), i), y + i, kPackSize<T>);
      }
      if (i < count) {
        store<T>(map(load(y + i, count - i), i), y + i, count - i);
      }
      return;
    }
  }
  transform(y, count, streamed, [&](int64_t i, int64_t) C10_ALWAYS_INLINE_ATTRIBUTE {
    return map(Pack<T>::loadu(powers + i), i);
  });
}

/// The sum of exp(x - maximum) over a row of `count` elements, where x(i, n) gives a pack of it.
/// kStores: the terms are stored to `powers`. Prefetches from `next`, which is read after this row.
template <typename T, bool kStores, typename Row>
C10_ALWAYS_INLINE Compute<T> exponential_sum(const Row& x, Compute<T> maximum, Compute<T>* powers,
                                             int64_t count, const T* next) {
  const Pack<T> max(maximum);
  return sum_of<T>(count, [&](int64_t i, int64_t n) {
    __builtin_prefetch(next + i);
    const Pack<T> power = exponential(x(i, n) - max);
    if constexpr (kStores) {
      if (n == kPackSize<T>) {
        power.store(powers + i);
      } else {
        power.store(powers + i, static_cast<int>(n));
      }
    }
    return power;
  });
}

/// y = finish(softmax(x), i) of one row of `count` elements with the given maximum, rounded once.
/// `powers`: of powers_of(), whose scratch has room for a row, rounded up to packs; `next` is read
/// after this row. Returns the sum of exp(x - maximum), which is positive and finite in a valid
/// row.
template <typename T, typename Row, typename Finish>
C10_ALWAYS_INLINE Compute<T> softmax_row(const Row& x, Compute<T> maximum, T* y, Compute<T>* powers,
                                         int64_t count, bool streamed, const T* next,
                                         const Finish& finish) {
  const Compute<T> sum = exponential_sum<T, true>(x, maximum, powers, count, next);
  const Pack<T> reciprocal(1 / sum);
  scale_powers(powers, y, count, streamed,
               [&](const Pack<T>& power, int64_t i)
                   C10_ALWAYS_INLINE_ATTRIBUTE { return finish(power * reciprocal, i); });
  return sum;
}

/// y = softmax(x) or log_softmax(x) of up to kRowGroup contiguous rows. Each step runs over all
/// rows before the next one: the steps of a short row depend on each other, those of other rows do
/// not. scratch is rows * (columns + kPackSize) long (unused for log_softmax). more: as many rows
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
  const auto powers = [&](int64_t row) {
    const int64_t at = row * columns;
    return powers_of(x + at, y + at, scratch + row * scratch_stride, columns, streamed);
  };
  for (int64_t row = 0; row < rows; ++row) {
    max[row] = max_of<T>(columns, row_of(row));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T* next = x + (more ? row + rows : row) * columns;
    divisor[row] = exponential_sum<T, !kLog>(row_of(row), max[row], powers(row), columns, next);
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
      scale_powers(powers(row), y + row * columns, columns, streamed,
                   [&](const P& power, int64_t) { return power * row_divisor; });
    }
  }
}

/// The maximum and the sum of a part of a row that is too long for a cache.
template <typename T>
PartialSoftmax softmax_part(const T* x, int64_t count) {
  using C = Compute<T>;
  const auto row = [&](int64_t i, int64_t n) { return load(x + i, n); };
  const C max = max_of<T>(count, row);
  const C finite = max == kNegativeInfinity<C> ? C(0) : max;  // of -inf alone: a sum of 0, or NaN
  return {max, exponential_sum<T, false>(row, finite, nullptr, count, x)};
}

/// The results of a part, from the reduction of its whole row.
template <typename T, bool kLog>
void softmax_part_results(const T* x, T* y, int64_t count, const PartialSoftmax& row,
                          bool streamed) {
  using C = Compute<T>;
  const Pack<T> max(static_cast<C>(row.max));
  const Pack<T> divisor(static_cast<C>(kLog ? std::log(row.sum) : 1 / row.sum));
  transform(y, count, streamed, [&](int64_t i, int64_t n) {
    return SoftmaxRule<kLog>::result(load(x + i, n) - max, divisor);
  });
}

/// y = softmax(x) * scale or log_softmax(x) along a dimension that is not the last, rounded once.
template <typename T, bool kLog, int kPacks>
void softmax_strided(const T* x, T* y, const StridedRows<T, kPacks>& rows, Compute<T> scale = 1) {
  using C = Compute<T>;
  using P = Pack<T>;
  const auto combine = [](const P& a, const P& b) { return larger(a, b); };
  const auto max = rows.fold(P(kNegativeInfinity<C>), combine,
                             [&](int64_t at, int) { return rows.load(x + at); });
  auto divisor =
      rows.sum([&](int64_t at, int pack) { return exponential(rows.load(x + at) - max[pack]); });
  for (P& pack : divisor) {
    pack = SoftmaxRule<kLog>::divisor(pack);
    if constexpr (!kLog) {
      pack = pack * P(scale);
    }
  }
  rows.transform(y, [&](int64_t at, int pack) {
    return SoftmaxRule<kLog>::result(rows.load(x + at) - max[pack], divisor[pack]);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
