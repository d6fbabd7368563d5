#include <algorithm>

#include "cached_attention_softmax/attend_query.cuh"
#include "cached_attention_softmax/prompt_kernel.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

using namespace cuda;

// --- many tokens: the cache is written first --------------------------------------------------

/// Whether a later token has the same slot: of several, the last one counts.
__device__ __forceinline__ bool is_replaced(const CachedAttentionArguments& a, int64_t batch,
                                            int64_t token, int64_t position) {
  const Positions& positions = a.positions;
  const auto is_in = [&](const auto* row) {
    row += batch * positions.batch_stride;
    bool found = false;
    for (int64_t later = token + 1; later < a.tokens; ++later) {
      found |= row[later * positions.token_stride] == position;
    }
    return found;
  };
  return positions.is_int64 ? is_in(static_cast<const int64_t*>(positions.data))
                            : is_in(static_cast<const int32_t*>(positions.data));
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(256)
    write_cache_kernel(const __grid_constant__ CachedAttentionArguments a, int lanes,
                       bool continues_chain) {
  if (continues_chain) {
    launch_dependents();
  }
  wait_for_previous_kernel();
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int pack = static_cast<int>(thread % lanes);
  const int64_t row = thread / lanes, per_batch = a.key_heads * a.tokens;
  const int64_t batch = row / per_batch, head = row / a.tokens % a.key_heads,
                token = row % a.tokens;
  if (batch >= a.batch) {
    return;
  }
  const int64_t position = load_position(a.positions, batch, token);
  if (position < 0 || position >= a.slots || is_replaced(a, batch, token, position)) {
    return;
  }
  const int elements = static_cast<int>(a.head_dim);
  store_pack<T, kAligned>(
      row_of<T>(a.keys, batch, head, position), pack, elements,
      load_pack<T, kAligned>(row_of<T>(a.key, batch, head, token), pack, elements, true));
  store_pack<T, kAligned>(
      row_of<T>(a.values, batch, head, position), pack, elements,
      load_pack<T, kAligned>(row_of<T>(a.value, batch, head, token), pack, elements, true));
}

// --- launch -----------------------------------------------------------------------------------

/// The warps and blocks that share a query's slots, both powers of two.
struct QueryShape {
  int log2_warps = kLog2AttendWarps;  // of a block
  int log2_blocks = 0;                // of a cluster

  /// As many warps as have two iterations. For more slots, and few queries, clusters of small
  /// blocks: as many as have an iteration and a place at once.
  QueryShape(int64_t queries, int64_t slots, int64_t slots_of_iteration) {
    constexpr int kLog2SmallWarps = 2;
    constexpr int64_t kPlaces = 4;  // for small blocks, of a multiprocessor
    if (slots_of_iteration << (kLog2AttendWarps + 1) >= slots) {
      while (log2_warps > 0 && slots_of_iteration << (log2_warps + 1) > slots) {
        --log2_warps;
      }
      return;
    }
    const int max_blocks =
        std::min({kMaxAttendBlocks, device_limits().rows.cluster_blocks, tuning().cluster_blocks});
    while (2 << log2_blocks <= max_blocks &&
           queries << (log2_blocks + 1) <= kPlaces * device_limits().rows.multiprocessors &&
           slots_of_iteration << (kLog2SmallWarps + log2_blocks) < slots) {
      ++log2_blocks;
    }
    if (log2_blocks > 0) {
      log2_warps = kLog2SmallWarps;
    }
  }
};

template <typename T, int kLanes, bool kAligned>
cudaError_t launch_attend(const CachedAttentionArguments& a, cudaStream_t stream) {
  const int64_t queries = a.batch * a.heads * a.tokens;
  const int64_t slots = a.window > 0 ? std::min(a.window, a.slots) : a.slots;
  constexpr int64_t kSlotsOfIteration = 32 / kLanes * kSlotsAhead;
  const QueryShape query(queries, slots, kSlotsOfIteration);
  const int warps = 1 << query.log2_warps, blocks = 1 << query.log2_blocks;
  LaunchShape shape{Tier::span, 1, queries * blocks, warps * 32, blocks};
  shape.shared_bytes =
      warps * sizeof(StagedSlots) + (blocks > 1 ? blocks * sizeof(AttendedPartial) : 0);
  return launch_in_chain<attend_kernel<T, kLanes, kAligned>>(shape, stream, a, query.log2_blocks,
                                                             query.log2_warps);
}

template <typename T, bool kAligned>
cudaError_t launch_write(const CachedAttentionArguments& a, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int lanes = static_cast<int>((a.head_dim + kPack<T> - 1) / kPack<T>);
  const int64_t threads = a.batch * a.key_heads * a.tokens * lanes;
  const LaunchShape shape{Tier::elements, 0, (threads + kThreads - 1) / kThreads, kThreads};
  return launch_in_chain<write_cache_kernel<T, kAligned>>(shape, stream, a, lanes);
}

template <typename T, bool kAligned>
cudaError_t launch(const CachedAttentionArguments& a, cudaStream_t stream) {
  if (a.tokens > 1) {
    if (const cudaError_t error = launch_write<T, kAligned>(a, stream); error != cudaSuccess) {
      return error;
    }
  }
  if constexpr (!kAligned) {
    return launch_attend<T, 32, false>(a, stream);
  } else if (a.head_dim <= 8 * kPack<T>) {
    return launch_attend<T, 8, true>(a, stream);
  } else if (a.head_dim <= 16 * kPack<T>) {
    return launch_attend<T, 16, true>(a, stream);
  } else {
    return launch_attend<T, 32, true>(a, stream);
  }
}

bool is_aligned(const CachedAttentionArguments& a) {
  const int64_t pack = 16 / element_bytes(a.dtype);
  const auto rows = [&](const auto& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && tensor.batch_stride % pack == 0 &&
           tensor.head_stride % pack == 0 && tensor.row_stride % pack == 0;
  };
  return a.head_dim % pack == 0 && rows(a.query) && rows(a.key) && rows(a.value) && rows(a.keys) &&
         rows(a.values);
}

}  // namespace

cudaError_t launch_cuda(const CachedAttentionArguments& a, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  const bool aligned = is_aligned(a);
  if (aligned && takes_prompt(a)) {
    return launch_prompt(a, stream);
  }
  return dispatch_narrow(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return aligned ? launch<T, true>(a, stream) : launch<T, false>(a, stream);
  });
}

}  // namespace warpfuse
