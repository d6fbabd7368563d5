#pragma once

#include <cstdint>

#include "rowwise/cpu/vector.h"

namespace warpfuse::WARPFUSE_ISA {

/// dx of one row of `count` elements, in the compute type; dx may be g or y.
///   softmax:      dx = scale * y * (g - sum(y * g))
///   log_softmax:  dx = g - exp(y) * sum(g)
template <typename C, bool kLog>
void softmax_backward_row(const C* g, const C* y, C* dx, C scale, int64_t count) {
  using Vec = at::vec::Vectorized<C>;
  if constexpr (kLog) {
    const Vec sum(sum_of<C>(count, [&](int64_t i, int64_t n) { return load(g + i, n); }));
    transform(dx, count,
              [&](int64_t i, int64_t n) { return load(g + i, n) - load(y + i, n).exp() * sum; });
  } else {
    const Vec dot(
        sum_of<C>(count, [&](int64_t i, int64_t n) { return load(y + i, n) * load(g + i, n); }));
    transform(dx, count, [&](int64_t i, int64_t n) {
      return load(y + i, n) * (load(g + i, n) - dot) * Vec(scale);
    });
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
