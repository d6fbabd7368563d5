#pragma once

#include <cooperative_groups.h>

#include "cached_attention_softmax/attend_rows.cuh"

namespace warpfuse::cuda {

// Attention of one query per block, or per cluster of blocks.

inline constexpr int kMaxAttendBlocks = 8;  // of a cluster

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

// More of them would compete with the kernel ahead for memory.
inline constexpr int kPrefetchedSlots = 256;

/// Brings the first slots that a cluster reads to the L2 cache, while the kernel ahead still runs.
template <typename T>
__device__ __forceinline__ void prefetch(const CachedAttentionArguments& a, const Query& query,
                                         const VisibleSlots& visible, int block, int blocks) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  for (const auto* rows : {&a.keys, &a.values}) {
    const T* const first = row_of<T>(*rows, query.batch, query.key_head, visible.first);
    const int slots = min(visible.last - visible.first, kPrefetchedSlots);
    const int64_t elements = slots * rows->row_stride;
    const int64_t threads = blockDim.x;
    for (int64_t i = (threadIdx.x + block * threads) * kLine; i < elements;
         i += blocks * threads * kLine) {
      prefetch_line(first + i);
    }
  }
}

inline constexpr int kAttendStages = 3;

/// A warp's keys and values on their way, kSlotsAhead slots per lane group and stage. A lane reads
/// what it has copied itself. The warp's partial takes their place in the end.
union StagedSlots {
  uint4 packs[kAttendStages][2][kSlotsAhead][32];
  AttendedPartial partial;
};

/// kLanes lanes share a slot, a pack each. Where there is one token per sequence, its key and value
/// are not in the cache yet: they are taken from the arguments, and written.
template <typename T, int kLanes, bool kAligned>
__global__ void __launch_bounds__(kAttendWarps * 32)
    attend_kernel(const __grid_constant__ CachedAttentionArguments a, int log2_blocks,
                  int log2_warps, bool continues_chain) {
  namespace cg = cooperative_groups;
  constexpr int kWarpSlots = 32 / kLanes;
  constexpr int kLog2WarpSlots = kLanes == 32 ? 0 : kLanes == 16 ? 1 : 2;
  extern __shared__ uint4 memory[];
  const int warps = 1 << log2_warps;
  auto* const staged_slots = reinterpret_cast<StagedSlots*>(memory);  // [warps]
  // Of the cluster, in its first block.
  [[maybe_unused]] auto* const of_blocks = reinterpret_cast<AttendedPartial*>(staged_slots + warps);
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
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slot_of_warp = lane / kLanes, pack = lane % kLanes;
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
  const int log2_stride = log2_blocks + kLog2WarpSlots + log2_warps, stride = 1 << log2_stride;
  const int lane_slot = visible.first + (block * warps + warp) * kWarpSlots + slot_of_warp;
  const int count = (visible.last - lane_slot + stride - 1) >> log2_stride;
  const int new_distance = new_slot - lane_slot;
  const int new_index =
      new_slot >= 0 && (new_distance & (stride - 1)) == 0 ? new_distance >> log2_stride : -1;
  const T* const keys = row_of<T>(a.keys, query.batch, key_head, lane_slot);
  const T* const values = row_of<T>(a.values, query.batch, key_head, lane_slot);
  StagedSlots& staged = staged_slots[warp];
  // The warp's first lane has as many slots as any.
  const int warp_count = __shfl_sync(~0u, count, 0);
  const auto copy = [&](int first, int stage) {
    const auto copy_rows = [&](auto& to, const T* rows, int64_t row_stride, const T* new_row) {
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        const int at = first + i;
        copy_pack<T, kAligned>(to[i][lane], at == new_index ? new_row : rows + at * row_stride,
                               pack, elements, at < count);
      }
    };
    if (first < warp_count) {
      copy_rows(staged.packs[stage][0], keys, stride * a.keys.row_stride, new_key);
      copy_rows(staged.packs[stage][1], values, stride * a.values.row_stride, new_value);
    }
    commit_copies();
  };
  Attended<T> attended;
#pragma unroll
  for (int stage = 0; stage < kAttendStages - 1; ++stage) {
    copy(stage * kSlotsAhead, stage);
  }
  int stage = 0;
  for (int first = 0; first < warp_count; first += kSlotsAhead) {
    copy(first + (kAttendStages - 1) * kSlotsAhead, (stage + kAttendStages - 1) % kAttendStages);
    wait_for_copies<kAttendStages - 1>();
    const auto& [key, value] = staged.packs[stage];
    float score[kSlotsAhead], max = attended.max;
#pragma unroll
    for (int i = 0; i < kSlotsAhead; ++i) {
      float k[kPack<T>], dot = 0;
      unpack<T>(key[i][lane], k);
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
      attended.add(score[i], value[i][lane]);
    }
    stage = stage + 1 == kAttendStages ? 0 : stage + 1;
  }

#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
    attended.join_lanes(offset);
  }
  wait_for_copies<0>();
  __syncwarp();
  if (slot_of_warp == 0) {
    staged.partial.max = attended.max;
    staged.partial.sum = attended.sum;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      staged.partial.values[pack * kPack<T> + i] = attended.values[i];
    }
  }
  const bool writes = new_slot >= 0 && block == 0 && query.head % (a.heads / a.key_heads) == 0;
  if (writes && slot_of_warp == 0) {
    const auto write = [&](const auto& rows, const T* from) {
      store_pack<T, kAligned>(row_of<T>(rows, query.batch, key_head, new_slot), pack, elements,
                              load_pack<T, kAligned>(from, pack, elements, true));
    };
    if (warp == 0) {
      write(a.keys, new_key);
    }
    if (warp == warps - 1) {
      write(a.values, new_value);
    }
  }
  __syncthreads();

  T* const output = static_cast<T*>(a.output) +
                    ((query.batch * a.tokens + query.token) * a.heads + query.head) * a.head_dim;
  const auto each_element = [&](const auto& visit) {
    for (int element = static_cast<int>(threadIdx.x); element < elements;
         element += static_cast<int>(blockDim.x)) {
      visit(element);
    }
  };
  const auto of_warp = [&](int i) { return &staged_slots[i].partial; };
  const auto store = [&](const auto& partial, int count) {
    each_element([&](int element) {
      const AttendedElement result(partial, count, element);
      output[element] = from_compute<T>(result.sum == 0.0f ? 0.0f : result.value / result.sum);
    });
  };
  if (blocks == 1) {
    store(of_warp, warps);
    return;
  }
#if __CUDA_ARCH__ >= 900
  cluster.barrier_wait();
  AttendedPartial* const of_block = cluster.map_shared_rank(&of_blocks[block], 0);
  each_element([&](int element) {
    const AttendedElement result(of_warp, warps, element);
    if (element == 0) {
      of_block->max = result.max;
      of_block->sum = result.sum;
    }
    of_block->values[element] = result.value;
  });
  cluster.barrier_arrive();
  if (block != 0) {
    return;  // the first block's shared memory is in use, and only that
  }
  cluster.barrier_wait();
  store([&](int i) { return &of_blocks[i]; }, blocks);
#endif
}

}  // namespace warpfuse::cuda
