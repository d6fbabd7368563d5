#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "rowwise/cpu/vector.h"
#include "rowwise/layout.h"

namespace warpfuse::WARPFUSE_ISA {

/// Neighbouring rows along a dimension that is not the last: they lie side by side, so each lane of
/// a pack holds a row of its own. kPacks packs, which are one piece of memory, are reduced at the
/// same time; only a single pack may have fewer lanes than kPackSize.
///
/// A map gives the pack at (offset, pack), the offset from the first row's first element.
template <typename T, int kPacks>
class Lanes {
 public:
  using P = Pack<T>;
  using Packs = std::array<P, kPacks>;

  Lanes(int64_t columns, int64_t stride, int64_t lanes, bool streamed)
      : columns_(columns), stride_(stride), lanes_(lanes), streamed_(streamed) {}

  C10_ALWAYS_INLINE P load(const T* from) const {
    return WARPFUSE_ISA::load(from, kPacks > 1 ? kPackSize<T> : lanes_);
  }

  /// The packs of each row combined with each other and `start`.
  template <typename Combine, typename Map>
  C10_ALWAYS_INLINE Packs fold(const P& start, const Combine& combine, const Map& map) const {
    return fold(0, columns_, start, combine, map);
  }

  /// The sum of each row, in blocks, so that its rounding error does not grow with the columns.
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
    const bool streams = streamed_ && aligned && lanes_ == kPacks * kPackSize<T>;
    for (int64_t column = 0; column < columns_; ++column) {
#pragma GCC unroll 4
      for (int pack = 0; pack < kPacks; ++pack) {
        const int64_t at = column * stride_ + pack * kPackSize<T>;
        const P result = map(at, pack);
        if (streams) {
          stream(rounded<T>(result), to + at);
        } else {
          store(result, to + at, kPacks > 1 ? kPackSize<T> : lanes_);
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
  int64_t lanes_;
  bool streamed_;
};

/// Calls function(offset, Lanes) for the rows [begin, end) of a tensor [outer, columns, inner] in
/// groups: four packs where they fit a cache, else one.
template <typename T, typename Function>
void for_lanes(const RowLayout& layout, int64_t begin, int64_t end, const Function& function) {
  const auto [outer, columns, inner] = layout;
  const Streaming streaming(outer * columns, inner * int64_t{sizeof(T)});
  const bool streamed = streaming.on();
  const bool wide = columns * 4 * kPackSize<T> * int64_t{sizeof(T)} <= kCachedBytes;
  while (begin < end) {
    const int64_t lane = begin % inner;
    const int64_t offset = begin / inner * columns * inner + lane;
    const int64_t left = std::min(inner - lane, end - begin);
    if (wide && left >= 4 * kPackSize<T>) {
      function(offset, Lanes<T, 4>(columns, inner, 4 * kPackSize<T>, streamed));
      begin += 4 * kPackSize<T>;
    } else {
      const int64_t lanes = std::min(left, kPackSize<T>);
      function(offset, Lanes<T, 1>(columns, inner, lanes, streamed));
      begin += lanes;
    }
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
