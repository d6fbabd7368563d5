#pragma once

#include "ms_deform_attn/lab/tile_producer.cuh"

namespace warpfuse::lab {

/// The block that the warp-specialised kernel was first drawn with: two producer warps and six
/// consumer warps work on one group of queries (8 for float16 and 32 channels), level by level.
/// Producers write the places of a level's points to shared memory; behind a barrier of the block
/// they start the copies, while consumers wait for them and share the points; behind another
/// barrier comes the next level.
struct DesignBlock {
  static constexpr int kProducers = 2, kConsumers = 6, kWarps = kProducers + kConsumers;
  static constexpr int kPoints = 32;  // of a batch: a level's, where it has 4

  template <typename T>
  struct Memory {
    char tiles[kPoints * 512];
    Compute<T> sums[kConsumers][32][cuda::kPack<T>];
    TilePoint<Compute<T>> points[kPoints];
    int2 corners[kPoints];
    cuda::Mbarrier full;
  };

  template <typename T>
  static int64_t bytes(int64_t levels) {
    constexpr int kAlignment = 128;
    return kAlignment + sizeof(Memory<T>) + levels * int64_t{sizeof(TileLevel)};
  }
};

template <typename T>
__global__ void __launch_bounds__(32 * DesignBlock::kWarps)
    design_kernel(const __grid_constant__ CUtensorMap model,
                  const __grid_constant__ TileArguments arguments) {
  using C = Compute<T>;
  extern __shared__ char unaligned[];
  auto& memory = *reinterpret_cast<DesignBlock::Memory<T>*>(
      unaligned + (-cuda::shared_address(unaligned) & 127u));
  auto* const levels = reinterpret_cast<TileLevel*>(&memory + 1);
  const TileBox& box = arguments.box;
  const MsDeformAttnInputs& in = arguments.inputs;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = cuda::DeformLanes::lane();
  const CUtensorMap* const maps =
      write_level_maps(model, arguments, memory.tiles, levels, DesignBlock::kWarps);
  if (threadIdx.x == 0) {
    memory.full.init(DesignBlock::kProducers);
  }
  cuda::fence_mbarrier_init();
  __syncthreads();
  const bool produces = warp < DesignBlock::kProducers;
  if (produces) {
    acquire_level_maps(maps, in);
  }
  const int consumer = warp - DesignBlock::kProducers;
  const int slot = lane >> box.log_lanes, byte = (lane & ((1 << box.log_lanes) - 1)) * 16;
  const int row_points = static_cast<int>(in.sizes.row_points());
  unsigned parity = 0;
  for (int number = static_cast<int>(blockIdx.x); number < arguments.units;
       number += static_cast<int>(gridDim.x)) {
    const TileUnit unit(arguments, number);
    C sum[cuda::kPack<T>] = {};
    for (int first = 0; first < row_points; first += box.batch_points(), parity ^= 1) {
      const int points = min(row_points - first, box.batch_points()) << box.log_rows();
      if (warp == 0) {
        const int point = first + (lane >> box.log_rows());
        locate(load_location<T>(arguments, unit, lane & (box.rows() - 1), point), point, arguments,
               levels, memory.points[lane], memory.corners[lane]);
      }
      __syncthreads();
      if (produces) {
        if (cuda::is_elected()) {
          const int half = (points + 1) / 2, begin = warp * half, end = min(begin + half, points);
          memory.full.arrive_expect_bytes((end - begin) * 4 * box.bytes);
          const int channel = unit.channel(arguments);
          for (int i = begin; i < end; ++i) {
            cuda::tma_load_4d(cuda::shared_address(memory.tiles) + i * box.tile_bytes,
                              maps + memory.points[i].level,
                              {channel, memory.corners[i].x, memory.corners[i].y, unit.batch},
                              memory.full);
          }
        }
      } else {
        memory.full.wait(parity);
        for (int i = (consumer << box.log_rows()) + slot; i < points && byte < box.bytes;
             i += DesignBlock::kConsumers << box.log_rows()) {
          add_tile<T>(sum, cuda::shared_address(memory.tiles) + i * box.tile_bytes,
                      memory.points[i], slot, byte, box.bytes);
        }
      }
      __syncthreads();
    }
    if (!produces) {
      for (int c = 0; c < cuda::kPack<T>; ++c) {
        memory.sums[consumer][lane][c] = sum[c];
      }
    }
    __syncthreads();
    if (consumer == 0) {
      for (int other = 1; other < DesignBlock::kConsumers; ++other) {
        for (int c = 0; c < cuda::kPack<T>; ++c) {
          sum[c] += memory.sums[other][lane][c];
        }
      }
      store_tile_row<T>(arguments, unit, slot, byte, sum);
    }
  }
}

}  // namespace warpfuse::lab
