#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace warpfuse {

/// A task of fewer elements costs more to start than it saves.
inline constexpr int64_t kElementsPerTask = 16384;

/// body(begin, end) over [0, rows), on the threads of at::parallel_for. Each thread begins with a
/// range of its own, the one it has in ATen's loops, whose results may lie in its caches; when it
/// is done with that, it takes tasks of the others, so that rows of unequal work (causal ones, say)
/// keep all threads busy. Tasks are multiples of `granule` rows but for the last.
template <typename Body>
void parallel_rows(int64_t rows, int64_t columns, const Body& body, int64_t granule = 1) {
  const auto blocks_of = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t tasks = std::max<int64_t>(1, rows * columns / kElementsPerTask);
  const int64_t task = blocks_of(rows, tasks * granule) * granule;
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), blocks_of(rows, task));
  if (threads == 1) {
    body(0, rows);
    return;
  }
  const int64_t range = blocks_of(rows, threads * granule) * granule;
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};
  };
  std::vector<Cursor> cursors(threads);
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t) {
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t owner = (first + i) % threads;
      const int64_t end = std::min((owner + 1) * range, rows);
      std::atomic<int64_t>& next = cursors[owner].next;
      for (int64_t begin; (begin = owner * range + next.fetch_add(task)) < end;) {
        body(begin, std::min(begin + task, end));
      }
    }
  });
}

}  // namespace warpfuse
