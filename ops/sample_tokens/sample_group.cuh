#pragma once

#include <climits>

#include "rowwise/cuda/group.cuh"
#include "sample_tokens/sample_search.h"

namespace warpfuse::cuda {

// Reductions over the blocks that share a row. All values are integers, so order does not matter.

// --- launch parameters, measured on an H200 ---------------------------------------------------

inline constexpr int kSampleThreads = 512;  // per block
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kSampleMinBlocks = 2;    // per multiprocessor, for the register allocation
inline constexpr int kSampleMaxCluster = 16;  // blocks per row
inline constexpr int kSampleMinPacks = kSampleThreads / 2;  // of a row, for each of its blocks

// --- within a warp ----------------------------------------------------------------------------

__device__ __forceinline__ int warp_max(int value) { return __reduce_max_sync(~0u, value); }
__device__ __forceinline__ int warp_min(int value) { return __reduce_min_sync(~0u, value); }
__device__ __forceinline__ int64_t warp_max(int64_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}
__device__ __forceinline__ int64_t warp_min(int64_t value) { return -warp_max(-value); }

/// The sum over this lane and the lanes before it.
__device__ __forceinline__ uint64_t inclusive_sum(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint64_t before = __shfl_up_sync(~0u, value, offset);
    value += lane >= offset ? before : 0;
  }
  return value;
}

// --- the extremes of a row --------------------------------------------------------------------

/// The largest key and the first token that has it, and the smallest key that is not -inf.
template <typename Format>
struct Extremes {
  using Key = typename Format::Key;
  Key max, min;
  int token;

  __device__ static Extremes none() { return {-Format::kInfinity, Format::kNaN, INT_MAX}; }
};

/// The reduction that finds them, for BlockGroup::total().
template <typename Format>
struct FindExtremes {
  using Key = typename Format::Key;
  using Partial = Extremes<Format>;

  __device__ static void add(Partial& found, Key key, int token) {
    found.token = key > found.max ? token : found.token;
    found.max = max(found.max, key);
    found.min = key > -Format::kInfinity ? min(found.min, key) : found.min;
  }

  __device__ Partial merge(const Warp&, const Partial& lane) const {
    const Key max = warp_max(lane.max);
    const int token = lane.max == max ? lane.token : INT_MAX;
    return {max, warp_min(lane.min), warp_min(token)};
  }
};

// --- the search for a key ---------------------------------------------------------------------

/// Masses by digit, in two words each: shared memory adds 32 bits atomically in hardware, 64 bits
/// in a loop.
struct Histogram {
  static constexpr int kDigits = 256;
  uint2 words[kDigits];  // x: the lower word

  /// By all threads of the block.
  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kSampleThreads) {
      words[i] = {0, 0};
    }
  }
  __device__ __forceinline__ void add(unsigned digit, uint64_t mass) {
    const auto lower = static_cast<unsigned>(mass);
    const unsigned before = atomicAdd(&words[digit].x, lower);
    const unsigned upper = static_cast<unsigned>(mass >> 32) + (before + lower < lower ? 1 : 0);
    if (upper != 0) {
      atomicAdd(&words[digit].y, upper);
    }
  }
  __device__ uint64_t mass(int digit) const {
    const uint2 both = words[digit];
    return static_cast<uint64_t>(both.y) << 32 | both.x;
  }
};
static_assert(Histogram::kDigits <= kSampleThreads);

template <typename Key>
using Search = KeySearch<Key, 8>;

/// Finds the digits of searches; lies in shared memory.
class DigitFinder {
 public:
  /// Before the first step; the caller synchronises the block.
  __device__ void clear() {
    histograms_[0].clear();
    histograms_[1].clear();
  }

  /// Double-buffered: while other blocks read one, the next digit is counted in the other.
  __device__ Histogram& histogram(int turn) { return histograms_[turn % 2]; }

  /// Ends a digit, called when the block's masses are in histogram(turn): enters it in the search.
  /// The first digit of a search sets `wanted` to target(total).
  template <typename Key, typename Target>
  __device__ void find(BlockGroup& group, int turn, bool first, const Target& target,
                       uint64_t& wanted, Search<Key>& search) {
    const int digit = static_cast<int>(threadIdx.x), warp = digit / 32;
    if (group.blocks() > 1) {
      group.wait_for_start();
      BlockGroup::arrive();
      BlockGroup::wait();
    } else {
      __syncthreads();
    }
    uint64_t mass = 0;
    if (digit < Histogram::kDigits) {
      if (group.blocks() > 1) {
#pragma unroll 8
        for (int block = 0; block < group.blocks(); ++block) {
          mass += BlockGroup::remote(&histogram(turn), block)->mass(digit);
        }
      } else {
        mass = histogram(turn).mass(digit);
      }
    }
    histogram(turn + 1).clear();  // all blocks have read it before the barrier above
    const uint64_t lanes_mass = inclusive_sum(mass);
    if (digit % 32 == 31) {
      warp_masses_[warp] = lanes_mass;
    }
    __syncthreads();
    uint64_t above = lanes_mass - mass, total = 0;
    for (int i = 0; i < kSampleWarps; ++i) {
      above += i < warp ? warp_masses_[i] : 0;
      total += warp_masses_[i];
    }
    wanted = first ? target(total) : wanted;
    const uint64_t still_wanted = wanted - search.above();
    if (above < still_wanted && still_wanted <= above + mass) {
      digit_ = static_cast<unsigned>(digit);
      above_ = above;
    }
    __syncthreads();
    search.enter(digit_, above_);
  }

 private:
  Histogram histograms_[2];
  uint64_t warp_masses_[kSampleWarps];
  uint64_t above_;
  unsigned digit_;
};

// --- the place of a draw ----------------------------------------------------------------------

/// A part of a row: the mass of its tokens above the bound, and the number of its ties.
struct PartSums {
  uint64_t mass, ties;

  __device__ uint64_t mass_or_ties(bool is_tie) const { return is_tie ? ties : mass; }
};

/// Turns a position in the row into one in part `index`. False if it lies in another part.
__device__ inline bool enter_part(const PartSums* parts, int index, bool is_tie,
                                  uint64_t& position) {
  for (int i = 0; i < index; ++i) {
    const uint64_t part = parts[i].mass_or_ties(is_tie);
    if (position < part) {
      return false;
    }
    position -= part;
  }
  return position < parts[index].mass_or_ties(is_tie);
}

/// The sums of all parts of a row; lies in shared memory.
class PartTable {
 public:
  /// Called by all threads with their sums. Returns the row's.
  __device__ PartSums reduce(BlockGroup& group, const PartSums& lane) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    const PartSums warp_sums{inclusive_sum(lane.mass), inclusive_sum(lane.ties)};
    if (thread % 32 == 31) {
      warps_[warp] = warp_sums;
    }
    __syncthreads();
    if (thread < group.blocks()) {
      const PartSums sums = sum(warps_, kSampleWarps);
      (group.blocks() > 1 ? BlockGroup::remote(blocks_, thread) : blocks_)[group.block()] = sums;
    }
    if (group.blocks() > 1) {
      group.wait_for_start();
      BlockGroup::arrive();
      BlockGroup::wait();
    } else {
      __syncthreads();
    }
    return sum(blocks_, group.blocks());
  }

  /// Turns a position in the row into one in this warp's part. False if it lies in another part.
  __device__ bool enter(const BlockGroup& group, bool is_tie, uint64_t& position) const {
    return enter_part(blocks_, group.block(), is_tie, position) &&
           enter_part(warps_, static_cast<int>(threadIdx.x) / 32, is_tie, position);
  }

 private:
  __device__ static PartSums sum(const PartSums* parts, int count) {
    PartSums sums{0, 0};
    for (int i = 0; i < count; ++i) {
      sums.mass += parts[i].mass;
      sums.ties += parts[i].ties;
    }
    return sums;
  }

  PartSums warps_[kSampleWarps];
  PartSums blocks_[kSampleMaxCluster];
};

}  // namespace warpfuse::cuda
