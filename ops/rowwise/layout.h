#pragma once

#include <cstdint>

namespace warpfuse {

/// A contiguous tensor seen as [outer, columns, inner]: a row is `columns` elements with
/// stride `inner`, which is 1 where the reduced dimension is the last one.
struct RowLayout {
  int64_t outer;
  int64_t columns;
  int64_t inner;

  int64_t rows() const { return outer * inner; }
};

/// The reduction of a part of a row: the maximum and the sum of exp(x - max) in the forward, a sum
/// alone in the backward.
struct PartialSoftmax {
  double max = 0.0;
  double sum = 0.0;
};

}  // namespace warpfuse
