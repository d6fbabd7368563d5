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
/// of all heads, x, y, batches. spatial_shapes is on the GPU, so the host cannot. By a whole warp;
/// `staging` is 128 bytes of shared memory of its own, aligned to 128. Other warps must be
/// synchronised with, and call acquire_level_map().
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
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(
                     shared),
                 "l"(data)
                 : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(
                     shared),
                 "r"(max(level.width, 1))
                 : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 2, %1;" ::"r"(
                     shared),
                 "r"(max(level.rows, 1))
                 : "memory");
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 1, %1;" ::"r"(
                     shared),
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

/// Before this warp's first copy by `map`.
__device__ __forceinline__ void acquire_level_map(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace warpfuse::lab
