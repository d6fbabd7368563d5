#pragma once

#include <cstdint>

namespace warpfuse {

/// What is read again from the cache of one core, at most: half of the 1 MiB that a second-level
/// cache has on most machines.
inline constexpr int64_t kCachedBytes = 512 * 1024;

/// Results of more bytes are written past the caches: they would not fit there until they are read.
inline constexpr int64_t kStreamedBytes = 32 * 1024 * 1024;

/// In the backward, whose two inputs pass without a pause, only rows this long gain from being
/// fetched ahead.
inline constexpr int64_t kFetchedRowBytes = 16 * 1024;

inline constexpr int64_t kLineBytes = 64;

}  // namespace warpfuse
