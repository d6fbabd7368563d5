#pragma once

#include <cuda.h>

#include "hopper/mbarrier.cuh"
#include "ms_deform_attn/lab/tile_algorithm.h"
#include "ms_deform_attn/sample_point.h"

namespace warpfuse::lab {

/// A level as the TMA unit sees it: rows that lie in the value. width is 0 without one.
struct TileLevel {
  int width, height, start, rows;

  __device__ TileLevel(const MsDeformAttnInputs& in, int index) {
    const SampledLevel level(in.spatial_shapes, in.level_start_index, index, in.sizes.pixels);
    const int pixels = static_cast<int>(in.sizes.pixels) - level.start;
    height = level.height;
    rows = level.width > 0 ? min(level.height, pixels / level.width) : 0;
    width = rows > 0 ? level.width : 0;
    start = rows > 0 ? level.start : 0;
  }
};

/// Makes a tensor map of `level` from that of a level of one pixel: dimensions are channels
/// of all heads, x, y, batches. spatial_shapes is on the GPU, so the host cannot. By a whole warp.
__device__ __forceinline__ void write_level_map(const CUtensorMap& model,
                                                const MsDeformAttnInputs& in,
                                                const TileLevel& level, unsigned* staging,
                                                CUtensorMap* map) {
  const unsigned lane = threadIdx.x % 32;
  staging[lane] = reinterpret_cast<const unsigned*>(&model)[lane];
  __syncwarp();
  const unsigned shared = cuda::shared_address(staging);
  if (lane == 0) {
    const int64_t pixel_bytes = int64_t{in.sizes.pixel_elements()} * element_bytes(in.dtype);
    const char* const data = static_cast<const char*>(in.value) + level.start * pixel_bytes;
    asm volatile(
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared),
        "l"(data)
        : "memory");
    asm volatile(
        "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(shared),
        "r"(max(level.width, 1))
        : "memory");
    asm volatile(
        "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 2, %1;" ::"r"(shared),
        "r"(max(level.rows, 1))
        : "memory");
    asm volatile(
        "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 1, %1;" ::"r"(shared),
        "l"(max(level.width, 1) * pixel_bytes)
        : "memory");
  }
  __syncwarp();
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
      " [%0], [%1], 128;" ::"l"(map),
      "r"(shared)
      : "memory");
}

/// The block's own maps, and `levels`, by all its `warps`. `staging` is shared memory of 128 bytes
/// per warp, aligned to 128; copies may write it once the block is synchronised.
__device__ __forceinline__ const CUtensorMap* write_level_maps(const CUtensorMap& model,
                                                               const TileArguments& arguments,
                                                               char* staging, TileLevel* levels,
                                                               int warps) {
  const int count = static_cast<int>(arguments.inputs.sizes.levels);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  CUtensorMap* const maps = arguments.level_maps + int64_t{blockIdx.x} * count;
  for (int i = warp; i < count; i += warps) {
    levels[i] = TileLevel(arguments.inputs, i);
    write_level_map(model, arguments.inputs, levels[i],
                    reinterpret_cast<unsigned*>(staging + warp * sizeof(CUtensorMap)), maps + i);
  }
  cuda::fence_async_proxy();
  return maps;
}

/// Behind a barrier, by each warp that copies by the maps.
__device__ __forceinline__ void acquire_level_maps(const CUtensorMap* maps,
                                                   const MsDeformAttnInputs& in) {
  for (int level = 0; level < in.sizes.levels; ++level) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps + level)
                 : "memory");
  }
}

}  // namespace warpfuse::lab
