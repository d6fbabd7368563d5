#include <cooperative_groups.h>

#include <algorithm>

#include "cached_attention_softmax/attend_rows.cuh"
#include "cached_attention_softmax/prompt_kernel.h"
#include "rowwise/cuda/dispatch.cuh"

namespace warpfuse {
namespace {

using namespace cuda;

constexpr int kMaxBlocks = 8;  // per query, of a cluster

// --- one query per cluster --------------------------------------------------------------------

/// What the kernels ahead may write is read after the wait: queries, keys, values and the cache. A
/// chain's kernels write no positions.
struct Query {
  int batch, head, token, key_head;

  __device__ Query(const CachedAttentionArguments& a, int index) {
    const int tokens = static_cast<int>(a.tokens), heads = static_cast<int>(a.heads);
    token = index % tokens;
    head = index / tokens % heads;
    batch = index / tokens / heads;
    key_head = head / (heads / static_cast<int>(a.key_heads));
  }
};

/// Brings the slots that a cluster reads to the L2 cache, while the kernel ahead still runs.
template <typename T>
__device__ __forceinline__ void prefetch(const CachedAttentionArguments& a, const Query& query,
                                         const VisibleSlots& visible, int block, int blocks) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  for (const auto* rows : {&a.keys, &a.values}) {
    const T* const first = row_of<T>(*rows, query.batch, query.key_head, visible.first);
    const int64_t elements = int64_t{visible.last - visible.first} * rows->row_stride;
    for (int64_t i = (static_cast<int>(threadIdx.x) + block * kAttendWarps * 32) * int64_t{kLine};
         i < elements; i += int64_t{blocks} * kAttendWarps * 32 * kLine) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(first + i));
    }
  }
}

/// kLanes lanes share a slot, a pack each. Where there is one token per sequence, its key and value
/// are not in the cache yet: they are taken from the arguments, and written.
template <typename T, int kLanes, bool kAligned>
__global__ void __launch_bounds__(kAttendWarps * 32)
    attend_kernel(const __grid_constant__ CachedAttentionArguments a, int log2_blocks,
                  bool continues_chain) {
  namespace cg = cooperative_groups;
  constexpr int kWarpSlots = 32 / kLanes;
  constexpr int kLog2WarpSlots = kLanes == 32 ? 0 : kLanes == 16 ? 1 : 2;
  __shared__ AttendedPartial partials[kAttendWarps];
  // Of the cluster, in its first block.
  [[maybe_unused]] __shared__ AttendedPartial of_blocks[kMaxBlocks];
  if (continues_chain) {
    launch_dependents();
  }
  const int blocks = 1 << log2_blocks;
  const int block = static_cast<int>(blockIdx.x) & (blocks - 1);
  const Query query(a, static_cast<int>(blockIdx.x) >> log2_blocks);
#if __CUDA_ARCH__ >= 900
  const auto cluster = cg::this_cluster();
  if (blocks > 1) {
    cluster.barrier_arrive();  // the first block has started
  }
#endif
  int64_t position = 0;
  if (continues_chain) {
    position = load_position(a.positions, query.batch, query.token);
    if (a.tokens == 1) {
      prefetch<T>(a, query, VisibleSlots(a, position), block, blocks);
    }
  }
  wait_for_previous_kernel();
  if (!continues_chain) {
    position = load_position(a.positions, query.batch, query.token);
  }
  const VisibleSlots visible(a, position);
  const int elements = static_cast<int>(a.head_dim);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slot_of_warp = static_cast<int>(threadIdx.x) % 32 / kLanes;
  const int pack = static_cast<int>(threadIdx.x) % kLanes;
  const int key_head = query.key_head;
  const int new_slot =
      a.tokens == 1 && position >= 0 && position < a.slots ? static_cast<int>(position) : -1;
  const T* const new_key = row_of<T>(a.key, query.batch, key_head, query.token);
  const T* const new_value = row_of<T>(a.value, query.batch, key_head, query.token);

  float q[kPack<T>];
  unpack<T>(load_pack<T, kAligned>(row_of<T>(a.query, query.batch, query.head, query.token), pack,
                                   elements, true),
            q);
  // This lane's slots are `stride` apart, a power of two.
  const int log2_stride = log2_blocks + kLog2WarpSlots + kLog2AttendWarps,
            stride = 1 << log2_stride;
  const int lane_slot = visible.first + (block * kAttendWarps + warp) * kWarpSlots + slot_of_warp;
  const int count = (visible.last - lane_slot + stride - 1) >> log2_stride;
  const int new_distance = new_slot - lane_slot;
  const int new_index =
      new_slot >= 0 && (new_distance & (stride - 1)) == 0 ? new_distance >> log2_stride : -1;
  const T* const keys = row_of<T>(a.keys, query.batch, key_head, lane_slot);
  const T* const values = row_of<T>(a.values, query.batch, key_head, lane_slot);
  const auto load = [&](int first, uint4(&key)[kSlotsAhead], uint4(&value)[kSlotsAhead]) {
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      const int at = first + i;
      const T* const row = at == new_index ? new_key : keys + at * (stride * a.keys.row_stride);
      key[i] = load_pack<T, kAligned>(row, pack, elements, at < count);
    }
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      const int at = first + i;
      const T* const row =
          at == new_index ? new_value : values + at * (stride * a.values.row_stride);
      value[i] = load_pack<T, kAligned>(row, pack, elements, at < count);
    }
  };
  Attended<T> attended;
  uint4 key[kSlotsAhead], value[kSlotsAhead];
  load(0, key, value);
  // The warp's first lane has as many slots as any.
  const int warp_count = __shfl_sync(~0u, count, 0);
  for (int first = 0; first < warp_count; first += kSlotsAhead) {
    uint4 next_key[kSlotsAhead], next_value[kSlotsAhead];
    load(first + kSlotsAhead, next_key, next_value);
    float score[kSlotsAhead], max = attended.max;
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      float k[kPack<T>], dot = 0;
      unpack<T>(key[i], k);
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        dot = fmaf(q[e], k[e], dot);
      }
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        dot += __shfl_xor_sync(~0u, dot, offset);
      }
      score[i] = first + i < count ? dot * a.scale : -INFINITY;
      max = larger(max, score[i]);
    }
    attended.scale_to(max);
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      attended.add(score[i], value[i]);
      key[i] = next_key[i];
      value[i] = next_value[i];
    }
  }

#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    attended.join_lanes(offset);
  }
  if (slot_of_warp == 0) {
    partials[warp].max = attended.max;
    partials[warp].sum = attended.sum;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      partials[warp].values[pack * kPack<T> + i] = attended.values[i];
    }
  }
  const bool writes = new_slot >= 0 && block == 0 && query.head % (a.heads / a.key_heads) == 0;
  if (writes && slot_of_warp == 0 && warp < 2) {
    const T* const from = warp == 0 ? new_key : new_value;
    T* const to = row_of<T>(warp == 0 ? a.keys : a.values, query.batch, key_head, new_slot);
    store_pack<T, kAligned>(to, pack, elements, load_pack<T, kAligned>(from, pack, elements, true));
  }
  __syncthreads();

  const int element = static_cast<int>(threadIdx.x);
  T* const output = static_cast<T*>(a.output) +
                    ((query.batch * a.tokens + query.token) * a.heads + query.head) * a.head_dim;
  const auto store = [&](const AttendedElement& result) {
    output[element] = from_compute<T>(result.sum == 0.0f ? 0.0f : result.value / result.sum);
  };
  const auto of_warp = [&](int i) { return &partials[i]; };
  if (blocks == 1) {
    if (element < elements) {
      store(AttendedElement(of_warp, kAttendWarps, element));
    }
    return;
  }
#if __CUDA_ARCH__ >= 900
  cluster.barrier_wait();
  if (element < elements) {
    const AttendedElement result(of_warp, kAttendWarps, element);
    AttendedPartial* const of_block = cluster.map_shared_rank(&of_blocks[block], 0);
    if (element == 0) {
      of_block->max = result.max;
      of_block->sum = result.sum;
    }
    of_block->values[element] = result.value;
  }
  cluster.barrier_arrive();
  if (block != 0) {
    return;  // the first block's shared memory is in use, and only that
  }
  cluster.barrier_wait();
  if (element < elements) {
    store(AttendedElement([&](int i) { return &of_blocks[i]; }, blocks, element));
  }
#endif
}

// --- many tokens: the cache is written first --------------------------------------------------

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
  if (position < 0 || position >= a.slots) {
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

/// Blocks that share a query's slots: as many as have an iteration's work, while there are
/// multiprocessors for them. A power of two.
int log2_blocks_per_query(const CachedAttentionArguments& a, int lanes) {
  const int64_t of_block = int64_t{kAttendWarps} * (32 / lanes) * kSlotsAhead;
  const int64_t queries = a.batch * a.heads * a.tokens;
  const int64_t resident = int64_t{2} * device_limits().rows.multiprocessors;
  const int max_blocks = std::min(kMaxBlocks, device_limits().rows.cluster_blocks);
  const int64_t slots = a.window > 0 ? std::min(a.window, a.slots) : a.slots;
  int log2_blocks = 0;
  for (int blocks = 1;
       2 * blocks <= max_blocks && blocks * of_block < slots && 2 * blocks * queries <= resident;
       blocks *= 2) {
    ++log2_blocks;
  }
  return log2_blocks;
}

template <typename T, int kLanes, bool kAligned>
cudaError_t launch_attend(const CachedAttentionArguments& a, cudaStream_t stream) {
  const int log2_blocks = log2_blocks_per_query(a, kLanes), blocks = 1 << log2_blocks;
  const LaunchShape shape{Tier::span, 1, a.batch * a.heads * a.tokens * blocks, kAttendWarps * 32,
                          blocks};
  return launch_in_chain<attend_kernel<T, kLanes, kAligned>>(shape, stream, a, log2_blocks);
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
