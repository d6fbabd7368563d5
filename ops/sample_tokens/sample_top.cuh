#pragma once

#include "sample_tokens/sample_group.cuh"
#include "sample_tokens/sample_slice.cuh"

namespace warpfuse::cuda {

// A draw with a small top_k. The blocks of a row exchange twice: for a key that few tokens reach,
// and to list these tokens, the candidates, in the first block, which compares each with each.

inline constexpr int kTopMost = 128;        // top_k
inline constexpr int kTopCandidates = 256;  // of a row
inline constexpr int kTopSlots = 1024;      // for the candidates of all blocks, shared out evenly

__host__ __device__ inline bool has_small_top_k(const SampleRule& rule) {
  return rule.top_k > 0 && rule.top_k <= kTopMost;
}

template <typename Format>
class TopSampler {
 public:
  using Key = typename Format::Key;

  struct Listed {
    Key key;
    int token;
  };
  struct Candidate {
    uint64_t mass;  // to be drawn, in the end
    Key key;
    unsigned place;  // in the order of draws; the token, before ties are known
  };
  struct Memory {
    union {
      Key maxima[kSampleThreads];            // of the row's parts
      Candidate candidates[kTopCandidates];  // in the first block, when all have read the maxima
    };
    Key warp_maxima[kSampleWarps];
    int listed;                     // by this block
    int counts[kSampleMaxCluster];  // by each block
    Listed lists[kTopSlots];        // by all blocks, in the first one
    uint64_t mass;                  // that top_k leaves
  };

  __device__ TopSampler(const SampleTokensArguments& arguments, BlockGroup& group, Memory& memory)
      : rule_(arguments.rule),
        group_(group),
        memory_(memory),
        slice_(static_cast<const typename Format::Bits*>(arguments.logits) +
                   group.index() * arguments.row_stride,
               static_cast<int>(arguments.columns), warp() * group.blocks() + group.block(),
               group.blocks() * kSampleWarps) {
    if (threadIdx.x == 0) {
      memory_.listed = 0;
    }
  }

  /// Draws a token and calls write(token) in one thread. False, in all blocks alike, if too many
  /// tokens are as large as the top_k-th.
  template <typename Write>
  __device__ bool sample(uint64_t bits, const Write& write) {
    const int top_k = static_cast<int>(rule_.top_k);
    const Key bound = lower_bound(top_k);
    const Key max = warp_max(memory_.warp_maxima[lane() % kSampleWarps]);
    if (max == Format::kNaN || max == -Format::kInfinity) {
      if (group_.rank() == 0) {
        write(-1);
      }
      return true;
    }
    list(bound);
    const int listed = lane() < group_.blocks() ? memory_.counts[lane()] : 0;
    const int count = __reduce_add_sync(~0u, listed);
    if (__any_sync(~0u, listed > slots()) || count > kTopCandidates) {
      return false;
    }
    if (group_.block() == 0) {
      collect(listed, TokenMass<Format>(max, rule_.scale));
      draw(count, top_k, bits, write);
    }
    return true;
  }

 private:
  using Slice = WarpSlice<Format, true>;
  using Pack = typename Slice::Pack;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % 32; }
  __device__ static int warp() { return thread() / 32; }

  /// Of this block.
  __device__ int slots() const { return kTopSlots / group_.blocks(); }

  /// A key that at least `wanted` tokens reach, or all that are not -inf: as many parts of the row
  /// have a maximum that does, of a part for each thread of one block.
  __device__ Key lower_bound(int wanted) {
    Key largest = -Format::kInfinity;
    slice_.template each<true>([&](const Pack& pack) {
#pragma unroll
      for (int i = 0; i < Slice::kPack; ++i) {
        largest = max(largest, pack[i]);
      }
    });
    if (group_.blocks() > 1) {
      largest = all_maxima(largest);
    }
    const Key warps_largest = warp_max(largest);
    if (lane() == 0) {
      memory_.warp_maxima[warp()] = warps_largest;
    }
    using Distance = std::make_unsigned_t<Key>;
    Key low = 1 - Format::kInfinity, high = Format::kNaN;
    for (int reached = 0; reached < wanted || reached > wanted + wanted / 8;) {
      const Distance half = (static_cast<Distance>(high) - static_cast<Distance>(low)) / 2;
      if (half == 0) {
        break;
      }
      const Key middle = static_cast<Key>(static_cast<Distance>(low) + half);
      reached = __syncthreads_count(largest >= middle);
      (reached >= wanted ? low : high) = middle;
    }
    return low;
  }

  /// Exchanges the maxima of the blocks' parts and returns that of part `thread`.
  __device__ Key all_maxima(Key largest) {
    const int blocks = group_.blocks(), parts = kSampleThreads / blocks;
#pragma unroll
    for (int offset = kSampleMaxCluster / 2; offset > 0; offset /= 2) {
      const Key other = __shfl_xor_sync(~0u, largest, offset);
      largest = offset < blocks ? max(largest, other) : largest;
    }
    Key* const own = memory_.maxima + group_.block() * parts;
    if (thread() % blocks == 0) {
      own[thread() / blocks] = largest;
    }
    __syncthreads();
    group_.wait_for_start();
    const int to = thread() / parts, part = thread() % parts;
    if (to != group_.block()) {
      BlockGroup::remote(own, to)[part] = own[part];
    }
    group_.sync();
    return memory_.maxima[thread()];
  }

  /// Lists the block's tokens from `bound` on in the first block, and their number in all blocks.
  __device__ void list(Key bound) {
    const int blocks = group_.blocks();
    Listed* const lists = blocks > 1 ? BlockGroup::remote(memory_.lists, 0) : memory_.lists;
    Listed* const list = lists + group_.block() * slots();
    slice_.template each<false>([&](const Pack& pack) {
#pragma unroll
      for (int i = 0; i < Slice::kPack; ++i) {
        if (pack[i] >= bound) {
          const int slot = atomicAdd(&memory_.listed, 1);
          if (slot < slots()) {
            list[slot] = {pack[i], pack.first + i};
          }
        }
      }
    });
    __syncthreads();
    if (thread() < blocks) {
      int* const counts =
          blocks > 1 ? BlockGroup::remote(memory_.counts, thread()) : memory_.counts;
      counts[group_.block()] = memory_.listed;
    }
    group_.sync();
  }

  /// Joins the lists, a warp each, into one of candidates. `listed`: of block `lane`.
  __device__ void collect(int listed, const TokenMass<Format>& mass) {
    const int before = __reduce_add_sync(~0u, lane() < warp() ? listed : 0);
    const int count = __shfl_sync(~0u, listed, warp());
    for (int i = lane(); i < count; i += 32) {
      const Listed token = memory_.lists[warp() * slots() + i];
      memory_.candidates[before + i] = {mass(token.key), token.key,
                                        static_cast<unsigned>(token.token)};
    }
    __syncthreads();
  }

  template <typename Write>
  __device__ void draw(int count, int top_k, uint64_t bits, const Write& write) {
    int lanes = 32;  // for each candidate
    while (lanes * count > kSampleThreads) {
      lanes /= 2;
    }
    const LaneGroup together(lanes);
    Candidate& own = memory_.candidates[min(thread() / lanes, count - 1)];
    const bool is_first = thread() / lanes < count && together.rank() == 0;
    const auto [own_mass, key, token] = own;
    int larger = 0, equal = 0, earlier = 0;  // candidates; earlier: of the equal ones
    uint64_t above = 0;                      // the mass of the larger ones
    for (int i = together.rank(); i < count; i += lanes) {
      const Candidate other = memory_.candidates[i];
      larger += other.key > key ? 1 : 0;
      equal += other.key == key ? 1 : 0;
      earlier += other.key == key && other.place < token ? 1 : 0;
      above += other.key > key ? other.mass : 0;
    }
    larger = together.sum(larger);
    equal = together.sum(equal);
    earlier = together.sum(earlier);
    above = together.sum(above);
    const uint64_t through = above + static_cast<uint64_t>(equal) * own_mass;
    if (is_first && larger < top_k && larger + equal >= min(top_k, count) && earlier == 0) {
      memory_.mass = through;
    }
    __syncthreads();
    const uint64_t target = rule_.has_top_p ? mass_to_keep(memory_.mass, rule_) : ~uint64_t{0};
    const bool kept = larger < top_k &&
                      above + static_cast<uint64_t>(earlier) * own_mass < target &&
                      own_mass >= rule_.min_mass;
    const uint64_t mass = kept ? own_mass : 0;
    // Ties that top_p cuts come behind all others.
    const unsigned place = token + (through >= target ? static_cast<unsigned>(kMaxColumns) : 0);
    if (is_first) {
      own.mass = mass;
      own.place = place;
    }
    __syncthreads();
    uint64_t before = 0, total = 0;
    for (int i = together.rank(); i < count; i += lanes) {
      const Candidate& other = memory_.candidates[i];
      before += other.place < place ? other.mass : 0;
      total += other.mass;
    }
    before = together.sum(before);
    const uint64_t at = upper_product(bits, together.sum(total));
    if (is_first && before <= at && at - before < mass) {
      write(static_cast<int>(token));
    }
  }

  const SampleRule& rule_;
  BlockGroup& group_;
  Memory& memory_;
  Slice slice_;
};

}  // namespace warpfuse::cuda
