#pragma once

#include <rowwise/tuning.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

// What the tests of plans run through: devices, and sizes of rows.

/// `*` in a table.
inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

inline constexpr warpfuse::RowLimits kHopper{size_t{228} * 1024, 16, 132, true};
inline constexpr warpfuse::RowLimits kAmpere{size_t{99} * 1024, 1, 84, true};  // 8.6
inline constexpr warpfuse::RowLimits kLeast{size_t{48} * 1024, 1, 1, false};

/// Of rows, in all combinations.
inline constexpr std::pair<warpfuse::Direction, int> kDirectionsAndBytes[] = {
    {warpfuse::Direction::forward, 2},  {warpfuse::Direction::forward, 4},
    {warpfuse::Direction::forward, 8},  {warpfuse::Direction::backward, 2},
    {warpfuse::Direction::backward, 4}, {warpfuse::Direction::backward, 8}};

/// Packs around every border of a table, and many between.
inline std::set<int64_t> interesting_packs(const warpfuse::Tuning& tuning) {
  std::set<int64_t> packs = {0};  // rows shorter than a pack
  for (int64_t n = 1; n < int64_t{1} << 33; n += 1 + n / 16) {
    packs.insert(n);
  }
  for (const warpfuse::TuningEntry& entry : tuning.entries) {
    if (entry.packs != kAny) {
      packs.insert({std::max<int64_t>(1, entry.packs - 1), entry.packs, entry.packs + 1});
    }
  }
  return packs;
}
