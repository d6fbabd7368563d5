#pragma once

#include <initializer_list>

#include "rowwise/tuning.h"

namespace warpfuse {

/// Numbers of packs a lane, from 0 to kMax.
struct LanePacks {
  static constexpr int kMax = 8;
  unsigned bits = 0;

  constexpr LanePacks() = default;
  constexpr LanePacks(std::initializer_list<int> numbers) {
    for (const int number : numbers) {
      bits |= 1U << number;
    }
  }

  constexpr bool contains(int64_t number) const {
    return number >= 0 && number <= kMax && (bits >> number & 1) != 0;
  }
  /// The least of them that is at least `number`; -1 where there is none.
  constexpr int at_least(int64_t number) const {
    for (int64_t n = number; n <= kMax; ++n) {
      if (contains(n)) {
        return static_cast<int>(n);
      }
    }
    return -1;
  }
  constexpr LanePacks operator|(const LanePacks& other) const {
    LanePacks both;
    both.bits = bits | other.bits;
    return both;
  }
};

/// The kernels of a row function by their packs a lane, but for those of the tier stream, which
/// every function has. They are what the shipped table or an algorithm's name can launch
/// (tests/test_kernel_set.cpp): launch.cuh compiles no others, a plan passes over the lines of a
/// table that ask for another, and a table with a line that no function can follow is refused.
struct KernelSet {
  LanePacks warp;        // 0: the row is read twice
  LanePacks span_warp;   // tier span, a warp for a row
  LanePacks span_block;  // tier span, a block for a row
  LanePacks block;       // tiers block and cluster
  LanePacks persistent;  // likewise, the next row on its way; 0: rows are in shared memory
};

/// What a function's kernels depend on.
struct RowKind {
  Direction direction;
  int element_bytes;
  bool dropout;  // the lines for dropout are for it
  bool plain;    // softmax's or log_softmax's forward, which runs by an algorithm's name too
};

constexpr KernelSet kernel_set(const RowKind& kind) {
  const bool forward = kind.direction == Direction::forward;
  KernelSet set;
  set.warp = {1, 2, 3, 4};
  if (kind.plain) {
    set.warp = {0, 1, 2, 3, 4, 5, 6, 8};
  } else if (forward && kind.dropout && kind.element_bytes < 8) {
    set.warp = {1, 2, 3, 4, 5, 6, 8};
  }
  if (kind.element_bytes == 8) {
    set.block = {1, 4};
    set.persistent = forward ? LanePacks{0, 4} : LanePacks{4};
    return set;
  }
  const bool wide = !forward && kind.element_bytes == 2;
  set.span_warp = wide ? LanePacks{4, 8} : LanePacks{4};
  set.span_block = wide ? LanePacks{1, 8} : LanePacks{1, 4};
  const bool float_forward = forward && kind.element_bytes == 4;
  set.block = float_forward ? LanePacks{1, 2, 4, 8} : LanePacks{1, 2, 4};
  set.persistent = float_forward ? LanePacks{0, 8} : LanePacks{0, 4, 8};
  return set;
}

}  // namespace warpfuse
