#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "common/counters.h"

// clang-tidy reads the sources without OpenMP.
#if !defined(_OPENMP) && !defined(__clang_analyzer__)
#error "at::parallel_for runs serially in a file that is compiled without -fopenmp"
#endif

namespace warpfuse {

/// Tasks of calls on the CPU; one per call that runs on one thread.
inline Counter parallel_pieces("parallel.pieces");

/// A thread with fewer elements saves less time than it costs to start.
inline constexpr int64_t kElementsPerThread = 16384;

/// body(begin, end) over [0, rows) with at::parallel_for, one piece per thread. A thread gets the
/// piece that it has in ATen's loops, so that the data it wrote there is in its caches. All pieces
/// but the last are multiples of `granule` rows.
template <typename Body>
void parallel_rows(int64_t rows, int64_t columns, const Body& body, int64_t granule = 1) {
  const int64_t granules = (rows + granule - 1) / granule;
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, granule * columns));
  at::parallel_for(0, granules, grain, [&](int64_t begin, int64_t end) {
    parallel_pieces.add();
    body(begin * granule, std::min(end * granule, rows));
  });
}

/// kernel(arguments, begin, end) over the rows of arguments.layout. Along a dimension that is not
/// the last, tasks are whole groups of four vectors of any dtype.
template <typename Arguments, typename Kernel>
void parallel_layout_rows(const Arguments& arguments, const Kernel& kernel) {
  constexpr int64_t kColumnGranule = 128;
  parallel_rows(
      arguments.layout.rows(), arguments.layout.columns,
      [&](int64_t begin, int64_t end) { kernel(arguments, begin, end); },
      arguments.layout.inner == 1 ? 1 : kColumnGranule);
}

/// parallel_rows() for rows of unequal work. A thread that has finished its piece steals tasks from
/// the pieces of others.
template <typename Body>
void parallel_uneven_rows(int64_t rows, int64_t columns, const Body& body) {
  constexpr int64_t kTasksPerThread = 16;
  const int64_t threads =
      std::clamp<int64_t>(rows * columns / kElementsPerThread, 1, at::get_num_threads());
  if (threads == 1) {
    parallel_pieces.add();
    body(0, rows);
    return;
  }
  const int64_t piece = (rows + threads - 1) / threads;
  const auto task = std::max<int64_t>({1, kElementsPerThread / columns, piece / kTasksPerThread});
  struct alignas(64) Cursor {  // on a cache line of its own
    std::atomic<int64_t> next{0};
  };
  std::vector<Cursor> cursors(threads);
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t) {
    parallel_pieces.add();
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t owner = (first + i) % threads;
      const int64_t end = std::min((owner + 1) * piece, rows);
      std::atomic<int64_t>& next = cursors[owner].next;
      for (int64_t begin; (begin = owner * piece + next.fetch_add(task)) < end;) {
        body(begin, std::min(begin + task, end));
      }
    }
  });
}

}  // namespace warpfuse
