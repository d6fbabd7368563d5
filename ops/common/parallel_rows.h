#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace warpfuse {

/// A task of fewer elements costs more to start than it saves.
inline constexpr int64_t kElementsPerTask = 16384;

/// body(begin, end) over [0, rows), on the threads of at::parallel_for. Each thread takes the next
/// task when it is done with one, so that rows of unequal work (causal ones, say) keep all threads
/// busy. Tasks are multiples of `granule` rows but for the last.
template <typename Body>
void parallel_rows(int64_t rows, int64_t columns, const Body& body, int64_t granule = 1) {
  const int64_t tasks = std::max<int64_t>(1, rows * columns / kElementsPerTask);
  const int64_t size = (rows + tasks * granule - 1) / (tasks * granule) * granule;
  if (size >= rows) {
    body(0, rows);
    return;
  }
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (rows + size - 1) / size);
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t begin; (begin = next.fetch_add(size, std::memory_order_relaxed)) < rows;) {
      body(begin, std::min(begin + size, rows));
    }
  });
}

}  // namespace warpfuse
