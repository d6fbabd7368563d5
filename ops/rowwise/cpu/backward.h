#pragma once

#include <cstdint>

#include "rowwise/cpu/strided.h"
#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

///   softmax:      dx = y * (g - sum(y * g))
///   log_softmax:  dx = g - exp(y) * sum(g)
template <bool kLog>
struct BackwardRule {
  template <typename P>
  static P term(const P& g, const P& y) {
    return kLog ? g : y * g;
  }
  template <typename P>
  static P result(const P& g, const P& y, const P& sum) {
    return kLog ? g - exponential(y) * sum : y * (g - sum);
  }
};

/// The sum of a row, or of a part of one.
template <typename T, bool kLog>
C10_ALWAYS_INLINE Compute<T> backward_sum(const T* g, const T* y, int64_t count) {
  return sum_of<T>(count, [&](int64_t i, int64_t n) {
    return BackwardRule<kLog>::term(load(g + i, n), load(y + i, n));
  });
}

/// The gradients of a row, or of a part of one, from its sum. kFetches: prefetches the data `ahead`
/// elements on, which is read next.
template <typename T, bool kLog, bool kFetches = false>
C10_ALWAYS_INLINE void backward_results(const T* g, const T* y, T* dx, int64_t count,
                                        Compute<T> row_sum, bool streamed, int64_t ahead = 0) {
  const Pack<T> sum(row_sum);
  transform(dx, count, streamed, [&](int64_t i, int64_t n) {
    if constexpr (kFetches) {
      __builtin_prefetch(g + ahead + i);
      __builtin_prefetch(y + ahead + i);
    }
    return BackwardRule<kLog>::result(load(g + i, n), load(y + i, n), sum);
  });
}

/// The gradients of up to kRowGroup rows, interleaved as in softmax_rows.
template <typename T, bool kLog>
void backward_rows(const T* g, const T* y, T* dx, int64_t rows, int64_t columns, bool streamed,
                   bool more) {
  Compute<T> sums[kRowGroup];
  const bool fetches = more && columns * int64_t{sizeof(T)} >= kFetchedRowBytes;
  for (int64_t row = 0; row < rows; ++row) {
    sums[row] = backward_sum<T, kLog>(g + row * columns, y + row * columns, columns);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * columns;
    if (fetches) {
      backward_results<T, kLog, true>(g + at, y + at, dx + at, columns, sums[row], streamed,
                                      rows * columns);
    } else {
      backward_results<T, kLog>(g + at, y + at, dx + at, columns, sums[row], streamed);
    }
  }
}

/// The gradients of rows along a dimension that is not the last.
template <typename T, bool kLog, int kPacks>
void backward_strided(const T* g, const T* y, T* dx, const StridedRows<T, kPacks>& rows) {
  const auto sum = rows.sum([&](int64_t at, int) {
    return BackwardRule<kLog>::term(rows.load(g + at), rows.load(y + at));
  });
  rows.transform(dx, [&](int64_t at, int pack) {
    return BackwardRule<kLog>::result(rows.load(g + at), rows.load(y + at), sum[pack]);
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
