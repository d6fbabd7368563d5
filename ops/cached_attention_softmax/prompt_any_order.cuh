#pragma once

#include "cached_attention_softmax/prompt_products_float.cuh"
#include "cached_attention_softmax/prompt_softmax.cuh"
#include "cached_attention_softmax/prompt_tiles.cuh"

namespace warpfuse::cuda {

/// The slots that a warp's rows see: all of them [all_first, all_last), and none of them anything
/// outside of [first, last).
struct RowsInCommon {
  int all_first, all_last, first, last;

  /// `rows` are this lane's two.
  __device__ explicit RowsInCommon(const SeenSlots (&rows)[2])
      : all_first(__reduce_max_sync(~0u, max(rows[0].first, rows[1].first))),
        all_last(__reduce_min_sync(~0u, min(rows[0].last, rows[1].last))) {
    int seen_first = INT_MAX, seen_last = 0;
    for (const SeenSlots& row : rows) {
      if (row.exists()) {
        seen_first = min(seen_first, row.first);
        seen_last = max(seen_last, row.last);
      }
    }
    first = __reduce_min_sync(~0u, seen_first);
    last = __reduce_max_sync(~0u, seen_last);
  }

  __device__ bool sees(int slot) const { return slot < last && slot + kTileSlots > first; }
  __device__ bool sees_all(int slot) const {
    return slot >= all_first && slot + kTileSlots <= all_last;
  }
};

/// Attention of a block's queries at positions in any order, by `kWarps` warps, each of which has
/// 16 queries. The scores stay in registers.
template <typename Products, int kWarps, int kStages>
struct AnyOrderPrompt {
  using T = typename Products::T;
  using Tiles = SlotTiles<Products, kWarps, kStages>;
  static constexpr int kQueries = Tiles::kQueries, kThreads = Tiles::kThreads;
  static constexpr int kQueriesBytes = kThreads * Products::kQueryBytes;
  static constexpr int kSharedBytes = Tiles::kBytes + kQueriesBytes;  // dynamic

  struct Shared {
    typename Tiles::Slots slots;
    typename Tiles::Barriers barriers;
    int tokens[kStages * kTileSlots];
  };

  /// `memory` is the shared address of kSharedBytes.
  __device__ static void attend(const CachedAttentionArguments& a, const PromptBlock& block,
                                Shared& shared, unsigned memory) {
    if (threadIdx.x == 0) {
      shared.barriers.init(kWarps);
    }
    const int queries = block.queries(a, kQueries), elements = static_cast<int>(a.head_dim);
    const Products products(memory + Tiles::kBytes);
    products.load(row_of<T>(a.query, block.batch, block.head, block.first_query),
                  a.query.row_stride, queries, elements);
    commit_copies();
    prefetch(a.key, block, queries, elements);
    prefetch(a.value, block, queries, elements);
    shared.slots.find(a, block.batch, block.first_query);
    wait_for_copies<0>();
    sync_warps<kWarps>();
    const Tiles tiles(a, shared.slots, shared.barriers, memory, shared.tokens, block);
    tiles.start();

    // This lane's rows.
    const SeenSlots seen[2] = {shared.slots.seen[query_row(0)], shared.slots.seen[query_row(1)]};
    const RowsInCommon common(seen);
    const float factor = exponent_factor(a.scale);
    RowSoftmax softmax;
    float o[Products::kHeadDim / 8][4] = {};
    for (int tile = 0; tile < tiles.count(); ++tile) {
      tiles.wait(tile);
      const int first = tiles.first_slot(tile);
      if (common.sees(first)) {
        float s[kTileSlots / 8][4];
        products.scores(s, tiles.keys(tile));
        if (a.scale < 0) {
          negate(s);
        }
        if (!common.sees_all(first)) {
#pragma unroll
          for (int i = 0; i < kTileSlots / 8; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const int slot = first + 8 * i + 2 * quad_rank() + j % 2;
              s[i][j] = seen[j / 2].holds(slot) ? s[i][j] : -INFINITY;
            }
          }
        }
        float by[2];
        softmax.add(s, factor, by);
        products.add_values(o, by, s, tiles.values(tile));
      }
      tiles.write(tile);
      tiles.release(tile);
    }

#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = quad_sum(softmax.sum[i]);
      const bool sees = seen[i].exists() && sum != 0.0f;
      if (!sees) {
#pragma unroll
        for (auto& columns : o) {
          columns[2 * i] = columns[2 * i + 1] = 0;
        }
      }
      Products::store(o, i, sees ? 1 / sum : 0.0f, block.output<T>(a, query_row(i)), elements,
                      query_row(i) < queries);
    }
  }

 private:
  /// Brings the block's own tokens, which it sees whatever else, to the L2 cache.
  __device__ static void prefetch(const HeadRows<const void*>& rows, const PromptBlock& block,
                                  int count, int elements) {
    constexpr int kLine = 128 / static_cast<int>(sizeof(T));
    const int lines = (elements + kLine - 1) / kLine;
    for (int i = static_cast<int>(threadIdx.x); i < count * lines; i += kThreads) {
      const T* const line =
          row_of<T>(rows, block.batch, block.key_head, block.first_query + i / lines) +
          i % lines * kLine;
      prefetch_line(line);
    }
  }
};

}  // namespace warpfuse::cuda
