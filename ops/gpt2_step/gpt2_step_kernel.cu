#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "gpt2_step/step_attention.cuh"
#include "gpt2_step/step_finish.cuh"
#include "gpt2_step/step_linear.cuh"
#include "gpt2_step/step_products.cuh"
#include "rowwise/cuda/device_limits.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse {
namespace {

using namespace cuda;

using Ranked = unsigned long long;
[[maybe_unused]] constexpr Ranked kAbsentRanked = ~Ranked{0};  // no output ranks so high
constexpr size_t kStageBytes = size_t{WeightRing::kStages} * WeightRing::kStageBytes;

size_t dynamic_bytes(const Gpt2StepArguments& a) {
  const int packs = std::max(a.width, a.inner) * static_cast<int>(element_bytes(a.dtype)) / 16;
  return kStageBytes + static_cast<size_t>(a.rows) * step_row_bytes(packs);
}

/// Memory for what the blocks hand to one another: the best outputs [rows, blocks], and StepValues.
struct StepMemory {
  Ranked* best;
  void* values;
  int packs;  // of 16 bytes, of both
};

template <typename T>
StepMemory step_memory(const Gpt2StepArguments& a, Workspace& workspace, int64_t blocks) {
  const int64_t best_packs = (a.rows * blocks * static_cast<int64_t>(sizeof(Ranked)) + 15) / 16;
  const StepValues<T> values{a, nullptr};
  const int64_t packs = best_packs + (values.end() - values.embeddings) / kPack<T>;
  auto* const memory = static_cast<uint4*>(workspace.allocate(packs * 16));
  return {reinterpret_cast<Ranked*>(memory), memory + best_packs, static_cast<int>(packs)};
}

/// The first element of row `index` of a table of `rows`; null for an index outside.
template <typename T>
__device__ const T* table_row(const void* table, int64_t index, int rows, int width) {
  return index >= 0 && index < rows ? static_cast<const T*>(table) + index * width : nullptr;
}

/// All blocks: embeddings, and nothing else is there yet.
template <typename T>
__device__ void begin_step(const Gpt2StepArguments& a, const StepMemory& memory,
                           const StepValues<T>& values) {
  const int thread = static_cast<int>(blockIdx.x * kStepThreads + threadIdx.x);
  const int threads = static_cast<int>(gridDim.x) * kStepThreads;
  const int packs = a.width / kPack<T>;
  for (int i = thread; i < a.rows * packs; i += threads) {
    const int row = i / packs, first = i % packs * kPack<T>;
    const T* const tables[] = {
        table_row<T>(a.token_embedding, a.ids[row], a.tokens, a.width),
        table_row<T>(a.position_embedding, a.positions[row], a.contexts, a.width)};
    float sums[kPack<T>] = {};
#pragma unroll
    for (const T* table : tables) {
      float elements[kPack<T>] = {};
      if (table != nullptr) {
        unpack<T>(load_16_bytes(table + first), elements);
      }
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) {
        sums[j] += elements[j];
      }
    }
    store_16_bytes(values.embeddings + i * kPack<T>, pack_bits<T>(sums));
  }
  auto* const all = reinterpret_cast<uint4*>(memory.best);
  const auto* const embeddings = reinterpret_cast<uint4*>(values.embeddings);
  for (int i = thread; i < memory.packs; i += threads) {
    if (all + i < embeddings || all + i >= embeddings + a.rows * packs) {
      store_16_bytes(all + i, make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
    }
  }
}

/// Brings vectors of a product to the L2 cache, where the weights would hold them up later.
template <typename T>
__device__ void prefetch_vectors(const StepProduct& product) {
  const auto prefetch = [](const void* vector, int elements) {
    constexpr int kLine = 128 / sizeof(T);
    for (int i = static_cast<int>(threadIdx.x) * kLine; i < elements; i += kStepThreads * kLine) {
      prefetch_line(static_cast<const T*>(vector) + i);
    }
  };
  if (product.bias != nullptr) {
    prefetch(product.bias, product.outputs);
  }
  if (product.norm_weight != nullptr) {
    prefetch(product.norm_weight, product.packs * kPack<T>);
    prefetch(product.norm_bias, product.packs * kPack<T>);
  }
}

/// Brings the keys and values that this block attends to in a layer to the L2 cache.
template <typename T>
__device__ void prefetch_slots(const Gpt2StepArguments& a, const StepShared& shared, int layer) {
  if (layer >= a.layers) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int unit = static_cast<int>(blockIdx.x); unit < a.rows * a.heads;
       unit += static_cast<int>(gridDim.x)) {
    const int row = unit / a.heads, slots = min(shared.positions[row], a.slots);
    const T* const keys = static_cast<const T*>(a.cache) + layer * a.cache_strides[0] +
                          row * a.cache_strides[2] + unit % a.heads * a.cache_strides[3];
    for (int slot = lane; slot < slots; slot += 32) {
      const T* const key = keys + slot * a.cache_strides[4];
      prefetch_line(key);
      prefetch_line(key + a.cache_strides[1]);
    }
  }
}

/// The warps that compute.
template <typename T>
__device__ void compute_step(const StepValues<T>& values, StepShared& shared, unsigned stages) {
  const Gpt2StepArguments& a = values.a;
  StepLinears<T> linears(a, shared, stages, stages + static_cast<unsigned>(kStageBytes));
  const int head = a.layers * kProducts;
  for (int index = 0; index <= head; ++index) {
    linears.run(shared.products[index]);
    if (index % kProducts == kQkv && index < head) {
      const int layer = index / kProducts;
      for (int unit = static_cast<int>(blockIdx.x); unit < a.rows * a.heads;
           unit += static_cast<int>(gridDim.x)) {
        StepAttention<T>(a, shared, layer, unit / a.heads, unit % a.heads)
            .run(values.layer(layer).qkv + unit * 3 * a.head_dim,
                 values.layer(layer).heads + unit * a.head_dim);
      }
    }
  }
}

/// The warps that finish tiles.
template <typename T>
__device__ void finish_step(const Gpt2StepArguments& a, StepShared& shared, Ranked* best_outputs) {
  StepFinish<T> finish(a, shared);
  const int head = a.layers * kProducts;
  for (int index = 0; index <= head; ++index) {
    if (index % kProducts == kProjection && step_warp() == kFirstFinishWarp) {
      prefetch_slots<T>(a, shared, index / kProducts + 1);
    }
    finish.run(shared.products[index]);
  }
  finish.join_best();
  asm volatile("bar.sync 2, %0;" ::"n"(kFinishWarps * 32) : "memory");
  const int row = static_cast<int>(threadIdx.x) - kFirstFinishWarp * 32;
  if (row < a.rows) {
    asm volatile(
        "st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(best_outputs + row * gridDim.x + blockIdx.x),
        "l"(shared.best[row])
        : "memory");
  }
}

/// The best of all blocks' outputs; a warp for each row.
template <typename T>
__device__ void choose_tokens(const Gpt2StepArguments& a, const Ranked* best_outputs) {
  const int row = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= a.rows) {
    return;
  }
  Ranked best = 0;
  for (int block = lane; block < static_cast<int>(gridDim.x); block += 32) {
    Ranked of_block;
    do {
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                   : "=l"(of_block)
                   : "l"(best_outputs + row * gridDim.x + block)
                   : "memory");
    } while (of_block == kAbsentRanked);
    best = max(best, of_block);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    best = max(best, __shfl_xor_sync(~0u, best, offset));
  }
  if (lane == 0) {
    a.next[row] = token_of<T>(best);
  }
}

/// A cooperative launch of one block per multiprocessor: 12 warps compute, one brings the weights
/// of all products to shared memory, in order and ahead of them, and 3 finish tiles.
template <typename T>
__global__ void __launch_bounds__(kStepThreads, 1)
    gpt2_step_kernel(const __grid_constant__ Gpt2StepArguments a, StepMemory memory,
                     bool reads_weights_once) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 stage_memory[];
  __shared__ StepShared shared;
  const int thread = static_cast<int>(threadIdx.x), count = a.layers * kProducts + 1;
  const StepValues<T> values{a, static_cast<T*>(memory.values)};
  if (thread < count) {
    shared.products[thread] = step_product(values, thread);
  }
  if (thread == 0) {
    shared.ring.init(kStepWarps);
    for (int i = 0; i < kSumsBuffers; ++i) {
      shared.sums_full[i].init(kStepWarps);
      shared.sums_empty[i].init(1);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  wait_for_previous_kernel();
  const unsigned stages = shared_address(stage_memory);
  WeightStream weights(shared.products, count, shared.ring, stages,
                       reads_weights_once ? evict_first() : evict_last());
  if (step_warp() == kCopyWarp) {
    weights.copy(WeightRing::kStages);
  }
  if (thread < kMaxStepRows) {
    const int64_t position = thread < a.rows ? a.positions[thread] : -1;
    shared.positions[thread] = static_cast<int>(max(min(position, int64_t{a.slots}), int64_t{-1}));
    shared.best[thread] = 0;
  }
  if (static_cast<int>(blockIdx.x) < count) {
    prefetch_vectors<T>(shared.products[blockIdx.x]);
  }
  begin_step(a, memory, values);
  cooperative_groups::this_grid().sync();
  if (step_warp() == kCopyWarp) {
    weights.copy(INT_MAX);
  } else if (step_warp() >= kFirstFinishWarp) {
    finish_step<T>(a, shared, memory.best);
  } else {
    compute_step(values, shared, stages);
    if (blockIdx.x == 0) {
      choose_tokens<T>(a, memory.best);
    }
  }
#endif
}

// --- launch -----------------------------------------------------------------------------------

LaunchShape shape_of(const Gpt2StepArguments& a) {
  LaunchShape shape{Tier::tile, 0, device_limits().rows.multiprocessors, kStepThreads};
  shape.shared_bytes = dynamic_bytes(a);
  shape.cooperative = true;
  return shape;
}

template <typename T>
cudaError_t launch(const Gpt2StepArguments& a, Workspace& workspace, cudaStream_t stream) {
  const LaunchShape shape = shape_of(a);
  // Weights that the L2 cache cannot hold until the next step had better leave it to the keys,
  // values and activations.
  constexpr int64_t kCachedBytes = int64_t{24} << 20;
  const int64_t layer_weights = int64_t{a.width} * (4 * a.width + 2 * a.inner);
  const int64_t weights = a.layers * layer_weights + int64_t{a.outputs} * a.width;
  const bool reads_once = weights * static_cast<int64_t>(sizeof(T)) > kCachedBytes;
  return launch_kernel(gpt2_step_kernel<T>, shape, stream, a,
                       step_memory<T>(a, workspace, shape.blocks), reads_once);
}

}  // namespace

bool fits_gpt2_step_cuda(const Gpt2StepArguments& a) {
  const int pack = 16 / static_cast<int>(element_bytes(a.dtype)), head_packs = a.head_dim / pack;
  const auto& limits = device_limits();
  return limits.dependent_launch && limits.rows.cooperative &&
         limits.rows.shared_bytes >= dynamic_bytes(a) + sizeof(StepShared) &&
         a.rows <= kMaxStepRows && a.layers <= kMaxStepLayers && a.width <= kMaxStepWidth &&
         a.inner <= kMaxStepInner && a.width % pack == 0 && a.inner % pack == 0 &&
         a.head_dim % pack == 0 && a.head_dim <= kMaxStepHeadDim &&
         std::has_single_bit(static_cast<unsigned>(head_packs));
}

cudaError_t launch_cuda(const Gpt2StepArguments& a, Workspace& workspace, cudaStream_t stream) {
  return dispatch_narrow(a.dtype,
                         [&](auto zero) { return launch<decltype(zero)>(a, workspace, stream); });
}

}  // namespace warpfuse
