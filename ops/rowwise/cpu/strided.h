#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "rowwise/cpu/streaming.h"
#include "rowwise/cpu/vector.h"
#include "rowwise/layout.h"

namespace warpfuse::WARPFUSE_ISA {

/// Neighbouring rows along a dimension that is not the last: each lane of a pack holds an element
/// of another row. kPacks contiguous packs are reduced together; only a single pack may hold fewer
/// rows than kPackSize.
///
/// A map returns the pack at (offset, pack), where offset counts from the first row's first
/// element.
template <typename T, int kPacks>
class StridedRows {
 public:
  using P = Pack<T>;
  using Packs = std::array<P, kPacks>;

  StridedRows(int64_t columns, int64_t stride, int64_t rows, bool streamed)
      : columns_(columns), stride_(stride), rows_(rows), streamed_(streamed) {}

  C10_ALWAYS_INLINE P load(const T* from) const {
    return WARPFUSE_ISA::load(from, kPacks > 1 ? kPackSize<T> : rows_);
  }

  /// Combines each row's elements with each other and `start`.
  template <typename Combine, typename Map>
  C10_ALWAYS_INLINE Packs fold(const P& start, const Combine& combine, const Map& map) const {
    return fold(0, columns_, start, combine, map);
  }

  /// The sum of each row, in blocks, so that rounding errors do not grow with the columns.
  template <typename Map>
  C10_ALWAYS_INLINE Packs sum(const Map& map) const {
    const auto add = [](const P& a, const P& b) { return a + b; };
    const P zero(Compute<T>(0));
    Packs total = filled(zero);
    for (int64_t begin = 0; begin < columns_; begin += 64) {
      const Packs block = fold(begin, std::min(begin + 64, columns_), zero, add, map);
#pragma GCC unroll 4
      for (int pack = 0; pack < kPacks; ++pack) {
        total[pack] = total[pack] + block[pack];
      }
    }
    return total;
  }

  /// Writes map to each element of the rows.
  template <typename Map>
  C10_ALWAYS_INLINE void transform(T* to, const Map& map) const {
    const bool aligned =
        (reinterpret_cast<uintptr_t>(to) | (stride_ * sizeof(T))) % sizeof(Vectorized<T>) == 0;
    const bool streams = streamed_ && aligned && rows_ == kPacks * kPackSize<T>;
    for (int64_t column = 0; column < columns_; ++column) {
#pragma GCC unroll 4
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t at = column * stride_ + pack * kPackSize<T>;
        const P result = map(at, pack);
        if (streams) {
          stream(rounded<T>(result), to + at);
        } else {
          store(result, to + at, kPacks > 1 ? kPackSize<T> : rows_);
        }
      }
    }
  }

 private:
  static Packs filled(const P& start) {
    Packs packs;
    packs.fill(start);
    return packs;
  }

  template <typename Combine, typename Map>
  C10_ALWAYS_INLINE Packs fold(int64_t begin, int64_t end, const P& start, const Combine& combine,
                               const Map& map) const {
    Packs packs = filled(start);
    for (int64_t column = begin; column < end; ++column) {
#pragma GCC unroll 4
      for (int pack = 0; pack < kPacks; ++pack) {
        packs[pack] = combine(packs[pack], map(column * stride_ + pack * kPackSize<T>, pack));
      }
    }
    return packs;
  }

  int64_t columns_;
  int64_t stride_;
  int64_t rows_;
  bool streamed_;
};

/// Calls function(offset, StridedRows) for the rows [begin, end) of a tensor [outer, columns,
/// inner] in groups: four packs where their columns fit the cache, else one. `result` is written.
template <typename T, typename Function>
void for_strided_rows(const RowLayout& layout, const void* result, int64_t begin, int64_t end,
                      const Function& function) {
  const int64_t columns = layout.columns, inner = layout.inner;
  const Streaming streaming(layout, sizeof(T), result);
  const bool four = columns * 4 * kPackSize<T> * int64_t{sizeof(T)} <= kCachedBytes;
  while (begin < end) {
    const int64_t column = begin % inner;
    const int64_t offset = begin / inner * columns * inner + column;
    const int64_t left = std::min(inner - column, end - begin);
    if (four && left >= 4 * kPackSize<T>) {
      function(offset, StridedRows<T, 4>(columns, inner, 4 * kPackSize<T>, streaming.on()));
      begin += 4 * kPackSize<T>;
    } else {
      const int64_t rows = std::min(left, kPackSize<T>);
      function(offset, StridedRows<T, 1>(columns, inner, rows, streaming.on()));
      begin += rows;
    }
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
