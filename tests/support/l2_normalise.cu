#include "rowwise/cuda/chunk.cuh"
#include "rowwise/cuda/cooperative.cuh"
#include "rowwise/cuda/in_shared.cuh"
#include "rowwise/cuda/persistent.cuh"
#include "support/l2_normalise.cuh"
#include "support/l2_normalise.h"

cudaError_t l2_normalise(const std::string& kernel, const float* input, float* output, int64_t rows,
                         int64_t columns, cudaStream_t stream) {
  using namespace warpfuse::cuda;
  constexpr int kThreads = 128, kSlots = 4, kParts = 3;
  constexpr size_t kSharedBytes = sizeof(uint4) * kSlots * kThreads;
  const L2Normalise function{{}, input, output, columns};
  const auto blocks = static_cast<unsigned>(rows);
  if (kernel == "warp") {
    warp_kernel<8, L2Normalise><<<(blocks + 3) / 4, kThreads, 0, stream>>>(function, rows, 32, 5);
  } else if (kernel == "chunk") {
    const auto chunk =
        ChunkShape::of<float>(rows, static_cast<int>(columns), 32, warpfuse::kChunkSlots, 1, 2048);
    chunk_kernel<warpfuse::kChunkSlots, false>
        <<<(blocks + chunk.rows - 1) / chunk.rows, 32, sizeof(uint4) * chunk.packs, stream>>>(
            function, rows, chunk, ChunkMaskShape(), ChunkGap());
  } else if (kernel == "block") {
    block_kernel<2, L2Normalise><<<blocks, kThreads, 0, stream>>>(function, 1);
  } else if (kernel == "persistent") {
    persistent_kernel<kSlots, L2Normalise>
        <<<(blocks + 1) / 2, kThreads, kSharedBytes, stream>>>(function, rows, 1);
  } else if (kernel == "shared") {
    shared_kernel<L2Normalise>
        <<<(blocks + 1) / 2, kThreads, kSharedBytes, stream>>>(function, rows, 1, kSlots);
  } else {
    L2Normalise::Partial* partials = nullptr;
    const size_t bytes = sizeof(*partials) * blocks * kParts;
    cudaError_t error = cudaMallocAsync(reinterpret_cast<void**>(&partials), bytes, stream);
    if (error != cudaSuccess) {
      return error;
    }
    if (kernel == "split") {
      split_read_kernel<<<blocks * kParts, kThreads, 0, stream>>>(function, kParts, partials);
      split_write_kernel<<<blocks * kParts, kThreads, 0, stream>>>(
          function, kParts, static_cast<const L2Normalise::Partial*>(partials));
    } else {
      // One pack a thread in shared memory: the rest of a range is read in batches.
      constexpr int kWarp = 32;
      int parts = kParts, slots = 1;
      L2Normalise parameter = function;
      void* arguments[] = {&parameter, &parts, &slots, &partials};
      error = cudaLaunchCooperativeKernel(cooperative_kernel<L2Normalise>, blocks * kParts, kWarp,
                                          arguments, sizeof(uint4) * kWarp, stream);
    }
    cudaFreeAsync(partials, stream);
    if (error != cudaSuccess) {
      return error;
    }
  }
  return cudaGetLastError();
}
