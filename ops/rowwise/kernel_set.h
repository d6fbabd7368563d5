#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace warpfuse {

enum class Direction { forward, backward };

/// Numbers of packs per lane, from 0 to kMax. A template argument: g++ 12 mangles arrays that
/// differ in their zeros alike, so that one kernel list would stand for another; it is one number.
struct LanePacks {
  static constexpr int kMax = 8;
  unsigned bits = 0;

  constexpr LanePacks() = default;
  constexpr LanePacks(std::initializer_list<int> numbers) {
    for (const int number : numbers) {
      bits |= 1U << static_cast<unsigned>(number);
    }
  }

  constexpr bool contains(int64_t number) const {
    return number >= 0 && number <= kMax && (bits >> static_cast<unsigned>(number) & 1U) != 0;
  }
  /// The least of them that is at least `number`; -1 where there is none.
  constexpr int at_least(int64_t number) const {
    for (; number <= kMax; ++number) {
      if (contains(number)) {
        return static_cast<int>(number);
      }
    }
    return -1;
  }
  constexpr bool empty() const { return bits == 0; }
  /// Whether `other` has no number that this lacks.
  constexpr bool covers(const LanePacks& other) const { return (other.bits & ~bits) == 0; }
  constexpr LanePacks operator|(const LanePacks& other) const {
    LanePacks both;
    both.bits = bits | other.bits;
    return both;
  }
};

/// What the kernels and the plan of a row function depend on.
struct RowKind {
  Direction direction;
  int element_bytes;
  bool plain;           // softmax or log_softmax
  bool masked;          // keys may be hidden
  bool dropout;         // it follows the table's lines for dropout
  bool tensor = false;  // a mask tensor hides keys

  bool operator==(const RowKind&) const = default;

  /// Bytes of a pack of each input of a row.
  constexpr int pack_bytes() const { return direction == Direction::forward ? 16 : 32; }
};

/// The kinds of row functions that there are.
constexpr std::array<RowKind, 6> row_kinds(Direction direction, int element_bytes) {
  return {{{direction, element_bytes, true, false, false},
           {direction, element_bytes, false, false, false},  // dropout first, half precision
           {direction, element_bytes, false, false, true},
           {direction, element_bytes, false, true, false},
           {direction, element_bytes, false, true, false, true},
           {direction, element_bytes, false, true, true}}};
}

/// The kernels of a row function by their packs per lane; the two kernels of the tier stream, which
/// every function but rules alone has, are not listed. The sets hold what the shipped table or an
/// algorithm's name can launch (tests/row_engine/test_kernel_set.cpp). launch.cuh compiles no
/// others, a plan passes over table lines that ask for another, and a table with a line that no
/// function can follow is refused.
struct KernelSet {
  LanePacks warp;            // 0: the row is read twice
  LanePacks span_warp;       // tier span, one warp per row
  LanePacks span_block;      // tier span, one block per row
  LanePacks block;           // tiers block and cluster, one row per block or cluster
  LanePacks persistent;      // tiers block and cluster, double-buffered
  bool shared = false;       // tiers block and cluster, rows in shared memory: 0 packs a lane
  bool cooperative = false;  // tier stream, all blocks resident
  bool chunk = false;        // tier chunk; plain functions have units.cuh's too

  /// Packs per lane of the tiers block and cluster.
  constexpr LanePacks block_packs(bool ahead) const {
    const LanePacks packs = ahead ? persistent : block;
    return shared ? packs | LanePacks{0} : packs;
  }
};

/// float64 has one kernel per tier. Attention's rows need no persistent kernels: up to 512K keys
/// fit the registers of a cluster, and one-shot clusters are 1.15 times as fast there.
constexpr KernelSet kernel_set(const RowKind& kind) {
  const bool forward = kind.direction == Direction::forward;
  KernelSet set;
  if (kind.element_bytes == 8) {
    set.warp = set.block = {4};
    return set;
  }
  set.chunk = !(kind.dropout && kind.tensor);
  set.warp = {1, 2, 3, 4};
  if (kind.plain && forward) {
    set.warp = {0, 1, 2, 3, 4, 5};  // 5: blocks of rows of 129 to 160 packs start too late
  } else if (kind.dropout && forward) {
    set.warp = {1, 2, 3, 4, 5, 6, 8};
  } else if (forward && !kind.masked) {
    set.warp = {1, 2, 3, 4, 6};  // dropout first
  }
  if (kind.masked) {
    set.block = {1, 4};
    if (!kind.dropout) {
      const bool wide = !forward && kind.element_bytes == 2;
      set.span_warp = wide ? LanePacks{4, 8} : LanePacks{4};
      set.span_block = wide ? LanePacks{1, 8} : LanePacks{1, 4};
    }
    return set;
  }
  const bool half = kind.element_bytes == 2;
  set.block = {1, 2, 4};
  set.persistent = {4, 8};
  if (forward) {
    set.persistent = half ? LanePacks{4} : LanePacks{8};  // half, 8: one-shot ones are faster
  }
  if (forward && kind.plain) {
    set.block = {1, 2, 4, 8};
  } else if (forward && kind.dropout) {
    set.block = half ? LanePacks{1, 2, 4} : LanePacks{1, 4};
    set.persistent = half ? LanePacks{} : LanePacks{8};
  }
  set.shared = true;
  set.cooperative = kind.plain;
  return set;
}

}  // namespace warpfuse
