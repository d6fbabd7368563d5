#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

namespace warpfuse {

/// A task of fewer elements costs more to start than it saves; ATen's own loops use this number
/// too.
inline constexpr int64_t kElementsPerTask = 32768;

/// body(begin, end) over [0, rows), by at::parallel_for.
template <typename Body>
void parallel_rows(int64_t rows, int64_t columns, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, grain, body);
}

}  // namespace warpfuse
