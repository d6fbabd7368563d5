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
C10_ALWAYS_INLINE Compute<T> backward_sum(const T* g, const T* y, int64_t count,
                                          int64_t distance = prefetch_distance()) {
  return sum_of<T>(count, [&](int64_t i, int64_t n) {
    prefetch_ahead(g + i, distance);
    prefetch_ahead(y + i, distance);
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

/// The gradients of rows, one after the other: a group of them would read and write in turn, which
/// costs bandwidth.
template <typename T, bool kLog>
void backward_rows(const T* g, const T* y, T* dx, int64_t rows, int64_t columns, bool streamed) {
  const bool fetches = columns * int64_t{sizeof(T)} >= kFetchedRowBytes;
  const int64_t distance = prefetch_distance();
  for (int64_t row = 0; row < rows; ++row, g += columns, y += columns, dx += columns) {
    const Compute<T> sum = backward_sum<T, kLog>(g, y, columns, distance);
    if (fetches && row + 1 < rows) {
      backward_results<T, kLog, true>(g, y, dx, columns, sum, streamed, columns);
    } else {
      backward_results<T, kLog>(g, y, dx, columns, sum, streamed);
    }
  }
}

/// The gradients of rows of at most kRegisterVectors packs, each of which stays in registers: it is
/// read and converted once. Of several packs the last is a full one that overlaps the one before.
template <typename T, bool kLog, int kPacks = 1>
void backward_rows_in_registers(const T* g, const T* y, T* dx, int64_t rows, int64_t columns) {
  using P = Pack<T>;
  if constexpr (kPacks < kRegisterVectors) {
    if (columns > kPacks * kPackSize<T>) {
      return backward_rows_in_registers<T, kLog, kPacks + 1>(g, y, dx, rows, columns);
    }
  }
  using Rule = BackwardRule<kLog>;
  const auto add = [](const auto& a, const auto& b) { return a + b; };
  const int64_t distance = prefetch_distance();
  const P zero(Compute<T>(0));
  const int64_t size = kPacks == 1 ? columns : kPackSize<T>;
  for (int64_t at = 0; at < rows * columns; at += columns) {
    const auto pack_at = [&](int i) {
      return at + (i < kPacks - 1 ? i * kPackSize<T> : columns - size);
    };
    P gradients[kPacks], outputs[kPacks];
    P total = zero;
#pragma GCC unroll 8
    for (int i = 0; i < kPacks; ++i) {
      prefetch_ahead(g + pack_at(i), distance);
      prefetch_ahead(y + pack_at(i), distance);
      gradients[i] = load(g + pack_at(i), size);
      outputs[i] = load(y + pack_at(i), size);
      const P term = Rule::term(gradients[i], outputs[i]);
      if constexpr (kPacks == 1) {
        total = blend_first(term, columns, zero);
      } else if (i == kPacks - 1) {
        total = total + blend_first(zero, kPacks * kPackSize<T> - columns, term);
      } else {
        total = total + term;
      }
    }
    const P sum(at::vec::vec_reduce_all(add, total));
#pragma GCC unroll 8
    for (int i = 0; i < kPacks; ++i) {
      store<T>(Rule::result(gradients[i], outputs[i], sum), dx + pack_at(i), size);
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
