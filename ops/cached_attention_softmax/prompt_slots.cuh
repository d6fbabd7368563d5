#pragma once

#include <climits>

#include "cached_attention_softmax/attend_rows.cuh"
#include "rowwise/cuda/row_order.cuh"

namespace warpfuse::cuda {

// Which slots the queries of a block see, and which of these are new: their keys and values are
// taken from the arguments, since other blocks write them to the cache at the same time.

inline constexpr int kTileSlots = 64;  // neighbouring slots that are computed together
inline constexpr int kWarpQueries = 16;

/// What finds a block's queries, computed on the host: divisions take long.
struct PromptOrder {
  FastDivisor rows, heads, group;  // [B, H], H, and the heads that share keys

  explicit PromptOrder(const CachedAttentionArguments& a)
      : rows(a.batch * a.heads), heads(a.heads), group(a.heads / a.key_heads) {}
};

/// The queries of a block, neighbours of one head. Blocks whose queries come last, which see many
/// slots, are first.
struct PromptBlock {
  int batch, head, key_head, first_query;
  bool writes_cache;  // its tokens: of the heads that share keys, one does

  /// Blocks have `queries` each.
  __device__ PromptBlock(const CachedAttentionArguments& a, const PromptOrder& order, int queries) {
    const int block = static_cast<int>(blockIdx.x), tile = order.rows.quotient(block);
    const int row = block - tile * static_cast<int>(order.rows.divisor);
    batch = order.heads.quotient(row);
    head = row - batch * static_cast<int>(a.heads);
    key_head = order.group.quotient(head);
    first_query = ((static_cast<int>(a.tokens) - 1) / queries - tile) * queries;
    writes_cache = head == key_head * static_cast<int>(order.group.divisor);
  }

  /// The block's queries, `max` at most.
  __device__ int queries(const CachedAttentionArguments& a, int max) const {
    return min(static_cast<int>(a.tokens) - first_query, max);
  }

  template <typename T>
  __device__ T* output(const CachedAttentionArguments& a, int query) const {
    const int64_t token = batch * a.tokens + first_query + query;
    return static_cast<T*>(a.output) + (token * a.heads + head) * a.head_dim;
  }
};

/// A barrier of kWarps warps of the block, those that name it: not 0, which is __syncthreads().
template <int kWarps>
__device__ __forceinline__ void sync_warps(int barrier = 1) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kWarps * 32) : "memory");
}

/// The slots that a query sees; [0, INT_MAX) where there is no query or it has no position, so that
/// it needs no mask. Its result is dropped.
struct SeenSlots {
  int first = 0, last = INT_MAX;

  __device__ bool exists() const { return last != INT_MAX; }
  __device__ bool holds(int slot) const { return first <= slot && slot < last; }
};

/// What a block knows of its queries and of its row of the batch, in shared memory.
template <int kQueries, int kWarps>
struct PromptSlots {
  SeenSlots seen[kQueries];
  int first_slot, first_token, new_slots;  // if consecutive
  bool consecutive;                        // the new tokens have neighbouring slots, in order
  bool has_gaps;                           // slots between those of two queries may be seen by none
  int begin, end;                          // all that is seen by any query lies between

  /// By all warps, followed by a barrier.
  __device__ void find(const CachedAttentionArguments& a, int batch, int first_query) {
    const int tokens = static_cast<int>(a.tokens), thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kQueries; i += kWarps * 32) {
      if (first_query + i >= tokens) {
        seen[i] = SeenSlots();
      }
    }
    // Largest values; smallest ones are negated.
    int largest[kValues];
#pragma unroll
    for (int& value : largest) {
      value = -INT_MAX;
    }
    int written = 0;
#pragma unroll 4
    for (int token = thread; token < tokens; token += kWarps * 32) {
      const int64_t position = load_position(a.positions, batch, token);
      const VisibleSlots visible(a, position);
      if (position >= 0 && position < a.slots) {
        const int distance = static_cast<int>(position) - token;
        const int values[] = {token, -token, distance, -distance};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          largest[i] = max(largest[i], values[i]);
        }
        ++written;
      } else if (position >= 0) {
        largest[4] = 1;
      }
      if (const int query = token - first_query; query >= 0 && query < kQueries) {
        seen[query] = position < 0 ? SeenSlots() : SeenSlots{visible.first, visible.last};
        if (position >= 0) {
          largest[5] = max(largest[5], visible.last);
          largest[6] = max(largest[6], -visible.first);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      largest[i] = __reduce_max_sync(~0u, largest[i]);
    }
    written = __reduce_add_sync(~0u, written);
    if (thread % 32 == 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        of_warp_[thread / 32][i] = largest[i];
      }
      of_warp_[thread / 32][kValues] = written;
    }
    sync_warps<kWarps>();
    if (thread < 32) {
      const int warp = min(thread, kWarps - 1);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        largest[i] = __reduce_max_sync(~0u, of_warp_[warp][i]);
      }
      written = __reduce_add_sync(~0u, thread < kWarps ? of_warp_[warp][kValues] : 0);
      if (thread == 0) {
        first_token = written == 0 ? 0 : -largest[1];
        first_slot = written == 0 ? 0 : first_token - largest[3];
        new_slots = written;
        consecutive =
            written == 0 || (largest[2] == -largest[3] && largest[0] - first_token == written - 1);
        has_gaps = a.window > 0 && (!consecutive || largest[4] == 1);
        begin = max(-largest[6], 0);
        end = max(largest[5], begin);
      }
    }
  }

  __device__ bool sees(int slot) const {
    bool any = false;
    for (const SeenSlots& slots : seen) {
      any |= slots.exists() && slots.holds(slot);
    }
    return any;
  }

 private:
  static constexpr int kValues = 7;
  int of_warp_[kWarps][kValues + 1];
};

}  // namespace warpfuse::cuda
