#pragma once

#include <cstdint>

namespace warpfuse {

/// A contiguous tensor seen as [outer, columns, inner]: a row is `columns` elements that lie
/// `inner` apart. inner is 1 where the reduced dimension is the last one.
struct RowLayout {
  int64_t outer;
  int64_t columns;
  int64_t inner;

  int64_t rows() const { return outer * inner; }
};

}  // namespace warpfuse
