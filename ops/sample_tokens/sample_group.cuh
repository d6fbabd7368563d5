#pragma once

#include <climits>

#include "rowwise/cuda/group.cuh"
#include "sample_tokens/sample_search.h"

namespace warpfuse::cuda {

// What the blocks of a row tell each other. All of it is whole numbers, whose order does not
// matter.

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kMostBlocks = 16;  // of a cluster

// --- within a warp ----------------------------------------------------------------------------

__device__ __forceinline__ int max_of_warp(int value) { return __reduce_max_sync(~0u, value); }
__device__ __forceinline__ int min_of_warp(int value) { return __reduce_min_sync(~0u, value); }
__device__ __forceinline__ int64_t max_of_warp(int64_t value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}
__device__ __forceinline__ int64_t min_of_warp(int64_t value) { return -max_of_warp(-value); }

/// The sum of the values of this lane and those before it.
__device__ __forceinline__ uint64_t sum_up_to_lane(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint64_t before = __shfl_up_sync(~0u, value, offset);
    value += lane >= offset ? before : 0;
  }
  return value;
}

// --- the ends of a row ------------------------------------------------------------------------

/// The largest key and the first token that has it, and the smallest key that is not -inf.
template <typename Format>
struct Extremes {
  using Key = typename Format::Key;
  Key max, min;
  int token;

  __device__ static Extremes none() { return {-Format::kInfinity, Format::kNaN, INT_MAX}; }
};

/// As BlockGroup::total wants it.
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
    const Key max = max_of_warp(lane.max);
    const int token = lane.max == max ? lane.token : INT_MAX;
    return {max, min_of_warp(lane.min), min_of_warp(token)};
  }
};

// --- the search for a key ---------------------------------------------------------------------

/// Masses by digit, as two words each: shared memory adds words at once, longer ones in a loop.
struct Histogram {
  static constexpr int kDigits = 256;
  uint2 words[kDigits];  // x: the lower one

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

/// Shared memory of a search's steps, and the steps.
class DigitFinder {
 public:
  /// Before the first step; the caller synchronises the block.
  __device__ void clear() {
    histograms_[0].clear();
    histograms_[1].clear();
  }

  /// Two in turn: while other blocks read one, the next digit is counted in the other.
  __device__ Histogram& histogram(int turn) { return histograms_[turn % 2]; }

  /// Ends a step when all of the block's masses are in histogram(turn): tells the search its digit.
  /// The first step of a search sets `wanted` to target(total).
  template <typename Key, typename Target>
  __device__ void step(BlockGroup& group, int turn, bool first, const Target& target,
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
    histogram(turn + 1).clear();  // all blocks have read it, or they would not be here
    const uint64_t up_to_lane = sum_up_to_lane(mass);
    if (digit % 32 == 31) {
      of_warps_[warp] = up_to_lane;
    }
    __syncthreads();
    uint64_t above = up_to_lane - mass, total = 0;
    for (int i = 0; i < kSampleWarps; ++i) {
      above += i < warp ? of_warps_[i] : 0;
      total += of_warps_[i];
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
  uint64_t of_warps_[kSampleWarps];
  uint64_t above_;
  unsigned digit_;
};

// --- where the draw falls ---------------------------------------------------------------------

/// Of a part of a row: the mass of its tokens above the least key, and how many are ties.
struct PartSums {
  uint64_t mass, ties;

  __device__ uint64_t of(bool of_ties) const { return of_ties ? ties : mass; }
};

/// Takes the parts before `index` off `position`. False where it lies in another part.
__device__ inline bool enter_part(const PartSums* parts, int index, bool of_ties,
                                  uint64_t& position) {
  for (int i = 0; i < index; ++i) {
    const uint64_t part = parts[i].of(of_ties);
    if (position < part) {
      return false;
    }
    position -= part;
  }
  return position < parts[index].of(of_ties);
}

/// The sums of all parts, in shared memory.
class PartTable {
 public:
  /// By all threads, with the sums of their warp: returns those of the row.
  __device__ PartSums share(BlockGroup& group, const PartSums& of_lane) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    const PartSums of_warp{sum_up_to_lane(of_lane.mass), sum_up_to_lane(of_lane.ties)};
    if (thread % 32 == 31) {
      warps_[warp] = of_warp;
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

  /// Whether the position, of the row, is this warp's; then it becomes that in the warp's part.
  __device__ bool enter(const BlockGroup& group, bool of_ties, uint64_t& position) const {
    return enter_part(blocks_, group.block(), of_ties, position) &&
           enter_part(warps_, static_cast<int>(threadIdx.x) / 32, of_ties, position);
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
  PartSums blocks_[kMostBlocks];
};

}  // namespace warpfuse::cuda
