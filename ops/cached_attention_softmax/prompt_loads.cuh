#pragma once

#include "cached_attention_softmax/prompt_slots.cuh"
#include "hopper/ring.cuh"
#include "hopper/tensor_map.h"
#include "hopper/tma.cuh"

namespace warpfuse::cuda {

// Tiles of kTileSlots tokens that count from the block's last new token back to the first slot:
// those whose first token is negative are of the slots ahead of the new tokens, which are
// neighbours in order. So each tile is wholly new or wholly old, and the TMA unit copies it.

/// Rows of a tensor as operands in shared memory: panels of 64 elements.
inline constexpr int kPanelElements = kOperandRowBytes / 2;

/// Tensors [B, H, rows, D] in boxes of kTileSlots rows of kPanelElements, the output in boxes of
/// kWarpQueries rows.
struct PromptMaps {
  CUtensorMap query, key, value, keys, values, output;
};

/// Copies of a block's queries, in groups of 64, and of its tiles, by one thread.
template <int kPanels, int kGroups, int kStages>
class PromptLoads {
 public:
  static constexpr int kPanelBytes = kTileSlots * kOperandRowBytes;
  static constexpr int kTileBytes = kPanels * kPanelBytes;  // of keys, values, or 64 queries
  using TileRing = Ring<kStages, 2 * kTileBytes>;           // keys, then values
  static constexpr int kSharedBytes = kStages * TileRing::kStageBytes + kGroups * kTileBytes;

  struct Shared {
    TileRing ring;
    Mbarrier queries;

    /// By one thread, followed by a barrier of the block.
    __device__ void init(int warps) {
      ring.init(warps);
      queries.init(1);
      fence_mbarrier_init();
    }
  };

  /// `memory` is the shared address of kSharedBytes.
  __device__ PromptLoads(const CachedAttentionArguments& a, const PromptMaps& maps,
                         const PromptBlock& block, Shared& shared, unsigned memory)
      : maps_(maps),
        block_(block),
        shared_(shared),
        memory_(memory),
        last_new_((block.first_query + block.queries(a, kGroups * kTileSlots) - 1) / kTileSlots),
        next_(shared.ring, memory) {}

  /// A cursor at the first tile.
  __device__ RingCursor<TileRing> first() const { return {shared_.ring, memory_}; }
  __device__ int first_token(int tile) const { return (last_new_ - tile) * kTileSlots; }
  /// The tile of the tokens of a group of queries: those of later groups come first.
  __device__ int tile_of(int query) const { return max(last_new_ - query / kTileSlots, 0); }
  /// Tiles of a cache whose new tokens begin at a slot.
  __device__ int count(int first_slot) const {
    return last_new_ + 1 + (first_slot + kTileSlots - 1) / kTileSlots;
  }
  __device__ unsigned queries(int group) const {
    return memory_ + kStages * TileRing::kStageBytes + group * kTileBytes;
  }
  __device__ void wait_for_queries() const { shared_.queries.wait(0); }

  /// Starts the copies that are needed at any positions, of queries and of new tokens.
  __device__ void start() {
    shared_.queries.arrive_expect_bytes(kGroups * kTileBytes);
    for (int group = 0; group < kGroups; ++group) {
      load(queries(group), maps_.query, block_.first_query + group * kTileSlots, block_.head,
           shared_.queries);
    }
    load_until(first_loads(), 0);
  }

  /// Starts the copies of tiles up to `end`.
  __device__ void load_until(int end, int first_slot) {
#pragma unroll 1
    for (; loaded_ < end; ++loaded_, next_.advance()) {
      const int first = first_token(loaded_);
      const bool is_new = first >= 0;
      const int row = is_new ? first : first_slot + first;
      next_.producer_wait();
      next_.full().arrive_expect_bytes(TileRing::kStageBytes);
      load(next_.stage(), is_new ? maps_.key : maps_.keys, row, block_.key_head, next_.full());
      load(next_.stage() + kTileBytes, is_new ? maps_.value : maps_.values, row, block_.key_head,
           next_.full());
    }
  }

  /// Waits for what start() has begun. By any thread.
  __device__ void wait_for_start() const {
    wait_for_queries();
    RingCursor loaded = first();
#pragma unroll 1
    for (int tile = 0; tile < first_loads(); ++tile, loaded.advance()) {
      loaded.consumer_wait();
    }
  }

 private:
  __device__ int first_loads() const { return min(last_new_ + 1, kStages); }

  __device__ void load(unsigned to, const CUtensorMap& map, int row, int head,
                       const Mbarrier& barrier) const {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      tma_load_4d(to + panel * kPanelBytes, &map, {panel * kPanelElements, row, head, block_.batch},
                  barrier);
    }
  }

  const PromptMaps& maps_;
  const PromptBlock& block_;
  Shared& shared_;
  unsigned memory_;
  int last_new_;  // the block's last tile of new tokens, counted from the first token
  int loaded_ = 0;
  RingCursor<TileRing> next_;
};

}  // namespace warpfuse::cuda
