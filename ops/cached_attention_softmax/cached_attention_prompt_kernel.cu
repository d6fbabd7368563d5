#include <algorithm>

#include "cached_attention_softmax/prompt_kernel.h"
#include "cached_attention_softmax/prompt_products_float.cuh"
#include "cached_attention_softmax/prompt_tiles.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

/// Softmax of the scores of a lane's two rows, tile after tile, in base 2.
struct RowSoftmax {
  float shift[2] = {-INFINITY, -INFINITY};  // of exponents
  float sum[2] = {0, 0};                    // of this lane's columns

  /// Scores become weights. `by` is what earlier weights are to be multiplied by.
  __device__ __forceinline__ void add(float (&s)[kTileSlots / 8][4], float factor, float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float max = -INFINITY;
#pragma unroll
      for (const auto& columns : s) {
        max = fmaxf(max, fmaxf(columns[2 * i], columns[2 * i + 1]));
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float next = fmaxf(shift[i], max * factor);
      const float subtracted = next == -INFINITY ? 0.0f : next;
      by[i] = fast_exp2(shift[i] - subtracted);
      shift[i] = next;
      float sums[2] = {0, 0};
#pragma unroll
      for (auto& columns : s) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          columns[2 * i + j] = fast_exp2(fmaf(columns[2 * i + j], factor, -subtracted));
          sums[j] += columns[2 * i + j];
        }
      }
      sum[i] = fmaf(sum[i], by[i], sums[0] + sums[1]);
    }
  }
};

/// The slots that some rows see: all of them [all_first, all_last), and none of them anything
/// outside of [first, last).
struct RowsInCommon {
  int all_first, all_last, first = INT_MAX, last = 0;

  /// Of this lane's two rows, the warp's rows, and the `count` queries from `group` on.
  __device__ RowsInCommon(const SeenSlots (&rows)[2], const SeenSlots* group, int count)
      : all_first(__reduce_max_sync(~0u, max(rows[0].first, rows[1].first))),
        all_last(__reduce_min_sync(~0u, min(rows[0].last, rows[1].last))) {
    for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) {
      if (group[i].exists()) {
        first = min(first, group[i].first);
        last = max(last, group[i].last);
      }
    }
    first = __reduce_min_sync(~0u, first);
    last = __reduce_max_sync(~0u, last);
  }

  __device__ bool sees(int slot) const { return slot < last && slot + kTileSlots > first; }
  __device__ bool sees_all(int slot) const {
    return slot >= all_first && slot + kTileSlots <= all_last;
  }
};

/// Brings `count` rows from `first` on to the L2 cache.
template <typename T>
__device__ void prefetch(const HeadRows<const void*>& rows, int batch, int head, int first,
                         int count, int elements) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  const int lines = (elements + kLine - 1) / kLine;
  for (int i = static_cast<int>(threadIdx.x); i < count * lines;
       i += static_cast<int>(blockDim.x)) {
    const T* const line = row_of<T>(rows, batch, head, first + i / lines) + i % lines * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  }
}

/// A block has kWarps * 16 queries of a head, those of many slots first; the scores stay in
/// registers.
template <typename Products, int kWarps, int kStages, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    prompt_kernel(const __grid_constant__ CachedAttentionArguments a, int query_tiles) {
  using T = typename Products::T;
  using Tiles = SlotTiles<Products, kWarps, kStages>;
  extern __shared__ unsigned char memory[];
  __shared__ typename Tiles::Slots slots;
  __shared__ typename Tiles::Barriers barriers;
  __shared__ int tokens[kStages * kTileSlots];
  if (threadIdx.x == 0) {
    barriers.init(kWarps);
  }
  wait_for_previous_kernel();

  const int heads = static_cast<int>(a.heads), group = heads / static_cast<int>(a.key_heads);
  const int rows = static_cast<int>(a.batch) * heads, block = static_cast<int>(blockIdx.x);
  const int head = block % rows % heads, batch = block % rows / heads, key_head = head / group;
  const int first_query = (query_tiles - 1 - block / rows) * Tiles::kQueries;
  const int queries = min(static_cast<int>(a.tokens) - first_query, Tiles::kQueries);
  const unsigned stages = (shared_address(memory) + 1023) / 1024 * 1024;
  const Products products(stages + Tiles::kBytes);
  const int elements = static_cast<int>(a.head_dim);
  products.load(row_of<T>(a.query, batch, head, first_query), a.query.row_stride, queries,
                elements);
  commit_copies();
  // The block sees its own tokens, whatever else.
  prefetch<T>(a.key, batch, key_head, first_query, queries, elements);
  prefetch<T>(a.value, batch, key_head, first_query, queries, elements);
  slots.find(a, batch, first_query);
  wait_for_copies<0>();
  Products::fence_shared();
  __syncthreads();
  const Tiles tiles(a, slots, barriers, stages, tokens, batch, key_head, first_query,
                    head % group == 0);
  tiles.start();

  // This lane's rows.
  const SeenSlots seen[2] = {slots.seen[query_row(0)], slots.seen[query_row(1)]};
  constexpr int kGroup = Products::kGroupQueries;
  const RowsInCommon common(
      seen, slots.seen + static_cast<int>(threadIdx.x) / 32 * 16 / kGroup * kGroup, kGroup);
  // Hidden scores are -inf, also where all others are to be equal.
  const float scale = static_cast<float>(a.scale);
  const float factor = fmaxf(fabsf(scale) * kLog2E, 1e-37f);
  RowSoftmax softmax;
  float o[Products::kHeadDim / 8][4] = {};
  for (int tile = 0; tile < tiles.count(); ++tile) {
    tiles.wait(tile);
    const int first = tiles.first_slot(tile);
    if (common.sees(first)) {
      float s[kTileSlots / 8][4];
      products.scores(s, tiles.keys(tile));
      if (Products::kAsync && tile > 0) {
        tiles.release(tile - 1);
      }
      if (scale < 0) {
#pragma unroll
        for (auto& columns : s) {
#pragma unroll
          for (float& score : columns) {
            score = -score;
          }
        }
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
    } else if (Products::kAsync && tile > 0) {
      products.wait(o);
      tiles.release(tile - 1);
    }
    tiles.write(tile);
    if (!Products::kAsync) {
      tiles.release(tile);
    }
  }
  products.wait(o);

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = query_row(i);
    const float sum = quad_sum(softmax.sum[i]);
    const bool sees = seen[i].exists() && sum != 0.0f;
    T* const output =
        static_cast<T*>(a.output) +
        ((static_cast<int64_t>(batch) * a.tokens + first_query + token) * heads + head) *
            a.head_dim;
    if (!sees) {
#pragma unroll
      for (auto& columns : o) {
        columns[2 * i] = columns[2 * i + 1] = 0;
      }
    }
    Products::store(o, i, sees ? 1 / sum : 0.0f, output, elements, token < queries);
  }
}

template <typename Products, int kWarps, int kStages, int kBlocks>
struct PromptForm {
  using Tiles = SlotTiles<Products, kWarps, kStages>;
  static constexpr size_t kSharedBytes =
      Tiles::kBytes + Tiles::kThreads * Products::kQueryBytes + 1024;

  static cudaError_t launch(const CachedAttentionArguments& a, cudaStream_t stream) {
    const int64_t query_tiles = (a.tokens + Tiles::kQueries - 1) / Tiles::kQueries;
    LaunchShape shape{Tier::tile, 0, a.batch * a.heads * query_tiles, Tiles::kThreads};
    shape.shared_bytes = kSharedBytes;
    return launch_kernel(prompt_kernel<Products, kWarps, kStages, kBlocks>, shape, stream, a,
                         static_cast<int>(query_tiles));
  }
};

/// The form for a dtype and heads of up to kHeadDim elements.
template <typename T, int kHeadDim>
struct FormOf {
  // Half of the queries per block in float32, for two blocks per multiprocessor.
  static constexpr bool kIsFloat = sizeof(T) == 4, kFitsTwice = kHeadDim == 64;
  using Form = PromptForm<PromptProducts<T, kHeadDim>, kIsFloat && kFitsTwice ? 4 : 8,
                          kIsFloat ? 2 : 4, kFitsTwice ? 2 : 1>;
};

/// Calls what(PromptForm) with the form for these arguments.
template <typename What>
auto with_form(const CachedAttentionArguments& a, What&& what) {
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return a.head_dim <= 64 ? what(typename FormOf<T, 64>::Form())
                            : what(typename FormOf<T, 128>::Form());
  });
}

}  // namespace

bool takes_prompt(const CachedAttentionArguments& a) {
  constexpr int kMinTokens = 16;
  return a.tokens >= kMinTokens && a.head_dim <= 128 && with_form(a, [](auto form) {
           return form.kSharedBytes <= device_limits().rows.shared_bytes;
         });
}

cudaError_t launch_prompt(const CachedAttentionArguments& a, cudaStream_t stream) {
  return with_form(a, [&](auto form) { return form.launch(a, stream); });
}

}  // namespace warpfuse
