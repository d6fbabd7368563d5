#pragma once

#include "hopper/ring.cuh"
#include "ms_deform_attn/lab/level_maps.cuh"
#include "ms_deform_attn/lab/tile_point.cuh"

namespace warpfuse::lab {

/// A stage of a ring: tiles of up to 32 points, [points][rows][4 pixels][box], their places, and
/// the unit of work that they belong to.
struct TileStage {
  static constexpr int kTileBytes = 4096;
  static constexpr int kPointBytes = 32 * sizeof(TilePoint<double>);
  static constexpr int kCornerOffset = kTileBytes + kPointBytes;
  static constexpr int kUnitOffset = kCornerOffset + 32 * sizeof(int2);
  static constexpr int kBytes = kUnitOffset + 128;  // the next stage's tiles are aligned to 128

  char* memory;

  template <typename C>
  __device__ TilePoint<C>& point(int index) const {
    return reinterpret_cast<TilePoint<C>*>(memory + kTileBytes)[index];
  }
  /// x and y of a tile's first pixel, for the lane that starts the copies.
  __device__ int2* corners() const { return reinterpret_cast<int2*>(memory + kCornerOffset); }
  __device__ int& unit() const { return *reinterpret_cast<int*>(memory + kUnitOffset); }
};

/// The shared memory of a block: stages of each consumer, rings' barriers, the levels; and in the
/// beginning a map of a level per warp in the place of the stages.
template <int kStages>
struct TileBlock {
  using Ring = cuda::Ring<kStages, TileStage::kBytes>;
  using Cursor = cuda::RingCursor<Ring>;

  static constexpr int64_t bytes(int consumers, int64_t levels) {
    constexpr int kAlignment = 128;
    return kAlignment + consumers * int64_t{kStages * TileStage::kBytes + sizeof(Ring)} +
           levels * int64_t{sizeof(TileLevel)};
  }

  char* stages;  // [consumers][kStages][TileStage::kBytes]
  Ring* rings;   // [consumers]
  TileLevel* levels;
  const CUtensorMap* maps;  // of levels

  /// By all threads of the block.
  __device__ TileBlock(char* memory, const CUtensorMap& model, const TileArguments& arguments) {
    const TileAlgorithm& algorithm = arguments.algorithm;
    stages = memory + (-cuda::shared_address(memory) & 127u);
    rings = reinterpret_cast<Ring*>(stages + algorithm.consumers * kStages * TileStage::kBytes);
    levels = reinterpret_cast<TileLevel*>(rings + algorithm.consumers);
    maps = write_level_maps(model, arguments, stages, levels, algorithm.warps());
    for (int i = static_cast<int>(threadIdx.x); i < algorithm.consumers;
         i += static_cast<int>(blockDim.x)) {
      rings[i].init(1);
    }
    cuda::fence_mbarrier_init();
    __syncthreads();
  }

  __device__ Cursor first_stage(int consumer) const {
    return {rings[consumer], cuda::shared_address(consumer_stages(consumer))};
  }
  /// The same position in the ring of another consumer.
  __device__ Cursor moved(const Cursor& cursor, int consumer) const {
    return cursor.in(rings[consumer], cuda::shared_address(consumer_stages(consumer)));
  }
  __device__ TileStage stage(const Cursor& cursor) const {
    return {stages + (cursor.stage() - cuda::shared_address(stages))};
  }

 private:
  __device__ char* consumer_stages(int consumer) const {
    return stages + consumer * kStages * TileStage::kBytes;
  }
};

/// The named barrier of a consumer's stage; 0 is __syncthreads()'s.
template <int kStages>
__device__ __forceinline__ int stage_barrier(int consumer, int stage) {
  return 1 + consumer * kStages + stage;
}

}  // namespace warpfuse::lab
