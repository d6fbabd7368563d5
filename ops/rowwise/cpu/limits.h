#pragma once

#include <cstdint>

namespace warpfuse {

// Sizes that decide how the CPU's kernels go over memory.

/// What is read again from the cache of one core, at most: half of the 1 MiB that a second-level
/// cache has on most machines.
inline constexpr int64_t kCachedBytes = int64_t{512} * 1024;

/// Results of more bytes are more than a last-level cache holds until they are read.
inline constexpr int64_t kStreamedBytes = int64_t{32} * 1024 * 1024;

/// In the backward, whose two inputs pass without a pause, only rows this long gain from being
/// fetched ahead.
inline constexpr int64_t kFetchedRowBytes = int64_t{16} * 1024;

inline constexpr int64_t kLineBytes = 64;

/// Whether the rows of a result are written past the caches: it is larger than they are, and no two
/// rows share a cache line.
inline bool is_streamed(int64_t rows, int64_t row_bytes) {
  return rows * row_bytes >= kStreamedBytes && row_bytes % kLineBytes == 0;
}

}  // namespace warpfuse
