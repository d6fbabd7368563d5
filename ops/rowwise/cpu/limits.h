#pragma once

#include <algorithm>
#include <cstdint>

#include "common/cpu_capability.h"
#include "common/resident.h"
#include "rowwise/layout.h"

namespace warpfuse {

// Sizes that decide how the CPU kernels go over memory.

/// Data that is read again stays in the cache of one core: half of the 1 MiB that a second-level
/// cache has on most machines.
inline constexpr int64_t kCachedBytes = int64_t{512} * 1024;

/// The same for a row's exponentials, by the size of this machine's cache where it is known. They
/// gain nothing sure beyond 1 MiB (docs/log.md).
inline int64_t cached_row_bytes() {
  return std::clamp(second_level_cache_bytes() / 2, kCachedBytes, 2 * kCachedBytes);
}

/// Results of more bytes are evicted from a last-level cache before they are read.
inline constexpr int64_t kStreamedBytes = int64_t{32} * 1024 * 1024;

/// Rows that are processed together in the forward, each step on all of them: the steps of one row
/// wait for each other.
inline constexpr int64_t kForwardGroupBytes = 2048;

/// Shortest rows that gain from software prefetch in the backward, whose two inputs keep the
/// hardware prefetcher busy.
inline constexpr int64_t kFetchedRowBytes = int64_t{16} * 1024;

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kLargestPageBytes = int64_t{64} * 1024;  // on any machine

/// A row of fewer bytes does not fill a vector of AVX2, the shorter of the two.
inline constexpr int64_t kVectorBytes = 32;

/// Maximum number of columns of rows that are transposed.
inline constexpr int64_t kTransposedColumns = 15;

/// Whether blocks of rows are transposed, since these are too short for vectors.
inline bool is_transposed(const RowLayout& layout, int64_t element_bytes) {
  return layout.inner == 1 && layout.columns * element_bytes < kVectorBytes;
}

/// Whether a result is larger than the caches and no two of its rows share a cache line.
inline bool may_be_streamed(int64_t rows, int64_t row_bytes) {
  return rows * row_bytes >= kStreamedBytes && row_bytes % kLineBytes == 0;
}

/// Whether the rows of such a result are written with non-temporal stores: its pages are there. A
/// new page is in the caches when it is written, from its zeroing. A page near the end tells: other
/// threads have written those in front, and malloc the last one.
inline bool is_streamed(int64_t rows, int64_t row_bytes, const void* result) {
  return may_be_streamed(rows, row_bytes) &&
         is_resident(static_cast<const char*>(result) + rows * row_bytes - kLargestPageBytes);
}

/// The same for a tensor [outer, columns, inner], whose contiguous pieces are rows, or, along
/// another dimension than the last, `inner` elements.
inline bool is_streamed(const RowLayout& layout, int64_t element_bytes, const void* result) {
  return layout.inner == 1
             ? is_streamed(layout.rows(), layout.columns * element_bytes, result)
             : is_streamed(layout.outer * layout.columns, layout.inner * element_bytes, result);
}

/// Maximum number of vectors of a row that stays in registers in the backward.
inline constexpr int kRegisterVectors = 8;

/// Whether rows do, in registers of `register_bytes`, 0 without vectors. No float64: it gains
/// least. Pages do not matter: the order of a row's sum may not depend on them.
inline bool is_in_registers(const RowLayout& layout, int64_t element_bytes,
                            int64_t register_bytes) {
  return layout.inner == 1 && element_bytes < 8 &&
         layout.columns * element_bytes <= kRegisterVectors * register_bytes &&
         !may_be_streamed(layout.rows(), layout.columns * element_bytes);
}

}  // namespace warpfuse
