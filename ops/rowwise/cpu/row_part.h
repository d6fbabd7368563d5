#pragma once

namespace warpfuse {

/// What a part of a row adds to its reduction: the largest element and the sum of exp(x - max) in
/// the forward, a sum alone in the backward.
struct RowPart {
  double max = 0.0;
  double sum = 0.0;
};

}  // namespace warpfuse
