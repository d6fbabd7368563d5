#pragma once

#include "cached_attention_softmax/prompt_any_order.cuh"
#include "cached_attention_softmax/prompt_loads.cuh"
#include "cached_attention_softmax/tokens_in_order.cuh"
#include "hopper/wgmma.cuh"

namespace warpfuse::cuda {

/// Attention of a block's queries in half precision on Hopper, if the tokens have neighbouring
/// slots of the cache, in order. Two warpgroups have 64 queries each; a thread of the second one,
/// which is the later one at most tiles, starts all copies.
template <typename T, int kDim>
class InOrderPrompt {
 public:
  static constexpr int kGroups = 2, kGroupThreads = 128, kThreads = kGroups * kGroupThreads;
  static constexpr int kQueries = kGroups * kTileSlots;
  static constexpr int kBlocks = kDim == 64 ? 2 : 1;  // per multiprocessor

 private:
  static constexpr int kStages = 4, kPanels = kDim / kPanelElements;
  static constexpr int kProducerWarp = (kThreads - kGroupThreads) / 32;
  using Products = PromptProducts<T, kDim>;
  using Loads = PromptLoads<kPanels, kGroups, kStages>;
  using TileRing = typename Loads::TileRing;
  using Scores = float[kTileSlots / 8][4];
  using Weights = unsigned[kTileSlots / 16][4];
  using Output = float[kDim / 8][4];
  static constexpr int kPanelBytes = Loads::kPanelBytes, kTileBytes = Loads::kTileBytes;

 public:
  using AnyOrder = AnyOrderPrompt<Products, kThreads / 32, kStages>;
  using Shared = typename Loads::Shared;
  static constexpr int kSharedBytes = Loads::kSharedBytes;
  static_assert(kSharedBytes == AnyOrder::kSharedBytes);

  /// `memory` is the shared address of kSharedBytes.
  __device__ InOrderPrompt(const CachedAttentionArguments& a, const PromptMaps& maps,
                           const PromptBlock& block, Shared& shared, unsigned memory)
      : a_(a), maps_(maps), block_(block), loads_(a, maps, block, shared, memory) {
    if (is_producer()) {
      loads_.start();
    }
  }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  /// False, and nothing has been written and the memory is free, if the tokens are not in order.
  __device__ bool attend(const TokensInOrder<kThreads>& tokens) {
    // The same in all lanes, as the compiler can see.
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
    const int group_query = block_.first_query + group * kTileSlots;
    const uint64_t queries = wgmma_operand(loads_.queries(group));
    const int own_tile = loads_.tile_of(group_query);
    RingCursor cursor = loads_.first();
    const uint64_t stages = wgmma_operand(cursor.stage());
#pragma unroll 1
    for (int tile = 0; tile < own_tile; ++tile) {
      cursor.advance();
    }
    const auto keys = [&] {
      return stages + static_cast<unsigned>(cursor.index()) * TileRing::kStageBytes / kOperandUnit;
    };
    Scores s;
    loads_.wait_for_queries();
    cursor.consumer_wait();
    wgmma_begin();
    start_scores(s, queries, keys());
    wgmma_end();
    const bool in_order = tokens.check();
    wgmma_wait();
    pin(s);
    if (!in_order) {
      loads_.wait_for_start();
      return false;
    }

    first_slot_ = tokens.first_slot();
    const int count = loads_.count(first_slot_);
    const auto load_until = [&](int end) {
      if (is_producer()) {
        loads_.load_until(min(end, count), first_slot_);
      }
      __syncwarp();
    };
    load_until(kStages);
    // All tiles are passed over by a group without queries.
    const bool has_queries = group_query < a_.tokens;
    RingCursor passed = loads_.first();
#pragma unroll 1
    for (int tile = 0; tile < (has_queries ? own_tile : count); ++tile, passed.advance()) {
      passed.consumer_wait();
      release(passed);
      load_until(tile + kStages);
    }
    if (!has_queries) {
      return true;
    }
    write_tile(cursor.stage(), group_query);

    const float factor = exponent_factor(a_.scale);
    RowSoftmax softmax;
    Output o = {};
    Weights weights[2];
    int tile = own_tile;
    hide(s, tile);
    softmax.add(s, factor);
    pack(weights[0], s);
    // The products of a tile's weights and values run beside the softmax of the next one.
    const auto step = [&](Weights& now, Weights& next) {
      RingCursor current = cursor;
      const uint64_t values = keys() + kTileBytes / kOperandUnit;
      cursor.advance();
      cursor.consumer_wait();
      pin(o);
      pin(now);
      wgmma_begin();
      start_scores(s, queries, keys());
      wgmma_end();
      add_values(o, now, values);
      wgmma_end();
      wgmma_wait<1>();
      pin(s);
      hide(s, ++tile);
      if (!softmax.add_below<T>(s, factor, next)) {
        float by[2];
        softmax.add(s, factor, by);
        wgmma_wait();
        pin(o);
        RowSoftmax::scale(o, by);
        pack(next, s);
      }
      wgmma_wait();
      pin(o);
      pin(now);
      release(current);
      load_until(tile - 1 + kStages);
    };
    const auto finish = [&](Weights& now) {
      pin(o);
      pin(now);
      wgmma_begin();
      add_values(o, now, keys() + kTileBytes / kOperandUnit);
      wgmma_end();
      wgmma_wait();
      pin(o);
    };
#pragma unroll 1
    for (;;) {
      if (tile + 1 == count) {
        finish(weights[0]);
        break;
      }
      step(weights[0], weights[1]);
      if (tile + 1 == count) {
        finish(weights[1]);
        break;
      }
      step(weights[1], weights[0]);
    }
    sync_warps<kGroupThreads / 32>(2 + group);  // the queries have been read
    store(loads_.queries(group), o, softmax);
    return true;
  }
#endif

 private:
  /// True in the thread that starts the loads.
  __device__ static bool is_producer() { return threadIdx.x / 32 == kProducerWarp && is_elected(); }

  __device__ static void release(RingCursor<TileRing>& read) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      wait_for_bulk_reads();  // of write_tile(), by the same lane
      read.consumer_release();
    }
  }

  /// By a warpgroup: the tile of its own tokens goes to the cache.
  __device__ void write_tile(unsigned stage, int first) const {
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    if (!block_.writes_cache) {
      return;
    }
    if (first + kTileSlots <= a_.tokens) {
      for (int panel = 0; thread == 0 && panel < kPanels; ++panel) {
        const int at[] = {panel * kPanelElements, first_slot_ + first, block_.key_head,
                          block_.batch};
        tma_store_4d(maps_.keys, at, stage + panel * kPanelBytes);
        tma_store_4d(maps_.values, at, stage + kTileBytes + panel * kPanelBytes);
      }
      return;
    }
    constexpr int kChunks = kDim / kPack<T>;
    const int chunk = thread % kChunks, rows = static_cast<int>(a_.tokens) - first;
    const int64_t slot = first_slot_ + first;
    T* const keys = row_of<T>(a_.keys, block_.batch, block_.key_head, slot) + chunk * kPack<T>;
    T* const values = row_of<T>(a_.values, block_.batch, block_.key_head, slot) + chunk * kPack<T>;
    for (int row = thread / kChunks; row < rows && chunk * kPack<T> < a_.head_dim;
         row += kGroupThreads / kChunks) {
      const unsigned from = stage + Products::offset(row, chunk);
      store_16_bytes(keys + row * a_.keys.row_stride, load_shared_16_bytes(from));
      store_16_bytes(values + row * a_.values.row_stride, load_shared_16_bytes(from + kTileBytes));
    }
  }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __device__ __forceinline__ static void start_scores(Scores& s, uint64_t queries, uint64_t keys) {
    wgmma_64x64<T, false>(s, queries, keys);
#pragma unroll
    for (int step = 1; step < kDim / 16; ++step) {
      const int to = (step / 4 * kPanelBytes + step % 4 * 32) / kOperandUnit;
      wgmma_64x64<T, true>(s, queries + to, keys + to);
    }
  }

  __device__ __forceinline__ static void add_values(Output& o, const Weights& weights,
                                                    uint64_t values) {
#pragma unroll
    for (int step = 0; step < kTileSlots / 16; ++step) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        const int to = (panel * kPanelBytes + step * 16 * kOperandRowBytes) / kOperandUnit;
        wgmma_64x64_registers<T>(o + 8 * panel, weights[step], values + to);
      }
    }
  }
#endif

  /// Scores of slots ahead of the first one, and of tokens behind a query, become -inf.
  __device__ __forceinline__ void hide(Scores& s, int tile) const {
    const int first = loads_.first_token(tile);
    if (a_.scale < 0) {
      negate(s);
    }
    if (first + kTileSlots - 1 <= block_.first_query + warp_query() && first >= -first_slot_) {
      return;
    }
    unrolled<kTileSlots / 2>([&](int i) {
      const int token = first + i / 4 * 8 + 2 * quad_rank() + i % 2;
      const bool seen = token >= -first_slot_ && token <= block_.first_query + query_row(i / 2 % 2);
      s[i / 4][i % 4] = seen ? s[i / 4][i % 4] : -INFINITY;
    });
  }

  /// Weights as an operand.
  __device__ __forceinline__ static void pack(Weights& weights, const Scores& s) {
    unrolled<kTileSlots / 4>([&](int i) {
      const float (&columns)[4] = s[i / 4 * 2 + i % 4 / 2];
      const float pair[] = {columns[i % 2 * 2], columns[i % 2 * 2 + 1]};
      weights[i / 4][i % 4] = pack_word(pair, T());
    });
  }

  /// The warp's first query, among the block's.
  __device__ static int warp_query() { return static_cast<int>(threadIdx.x) / 32 * kWarpQueries; }

  /// The warp's rows go to where its queries were, and from there to the output.
  __device__ void store(unsigned queries, const Output& o, const RowSoftmax& softmax) const {
    const int first_row = warp_query() % kTileSlots;
    float by[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = quad_sum(softmax.sum[i]);
      by[i] = sum == 0 ? 0.0f : 1 / sum;  // 0 where all scores are -inf
    }
    unrolled<kDim / 4>([&](int i) {
      const float (&columns)[4] = o[i / 2];
      const float pair[] = {columns[i % 2 * 2] * by[i % 2], columns[i % 2 * 2 + 1] * by[i % 2]};
      const int offset = Products::offset(first_row + quad() + i % 2 * 8, i / 2);
      store_shared_word(queries + offset + 4 * quad_rank(), pack_word(pair, T()));
    });
    fence_async_proxy();
    __syncwarp();
    if (is_elected()) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        tma_store_4d(
            maps_.output,
            {panel * kPanelElements, block_.first_query + warp_query(), block_.head, block_.batch},
            queries + panel * kPanelBytes + first_row * kOperandRowBytes);
      }
    }
    wait_for_bulk_reads();  // by all lanes: another one may have called write_tile()'s
  }

  const CachedAttentionArguments& a_;
  const PromptMaps& maps_;
  const PromptBlock& block_;
  Loads loads_;
  int first_slot_ = 0;  // of the new tokens
};

}  // namespace warpfuse::cuda
