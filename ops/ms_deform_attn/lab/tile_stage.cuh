#pragma once

#include "hopper/ring.cuh"
#include "ms_deform_attn/lab/level_maps.cuh"
#include "ms_deform_attn/lab/tile_algorithm.h"
#include "rowwise/cuda/math.cuh"

namespace warpfuse::lab {

using cuda::Compute;

/// A point: the place between the tile's four pixels, the weight, and the level.
template <typename C>
struct alignas(4 * sizeof(C)) TilePoint {
  C x, y, weight;
  int level;
};

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
    const int level_count = static_cast<int>(arguments.inputs.sizes.levels);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    stages = memory + (-cuda::shared_address(memory) & 127u);
    rings = reinterpret_cast<Ring*>(stages +
                                    algorithm.consumers * kStages * TileStage::kBytes);
    levels = reinterpret_cast<TileLevel*>(rings + algorithm.consumers);
    CUtensorMap* const own_maps = arguments.level_maps + int64_t{blockIdx.x} * level_count;
    for (int i = warp; i < level_count; i += algorithm.warps()) {
      levels[i] = TileLevel(arguments.inputs, i);
      write_level_map(model, arguments.inputs, levels[i],
                      reinterpret_cast<unsigned*>(stages + warp * sizeof(CUtensorMap)),
                      own_maps + i);
    }
    for (int i = static_cast<int>(threadIdx.x); i < algorithm.consumers;
         i += static_cast<int>(blockDim.x)) {
      rings[i].init(1);
    }
    cuda::fence_mbarrier_init();
    fence_proxy_async();  // copies to the stages come after the maps there
    __syncthreads();
    maps = own_maps;
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
  __device__ static void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
};

/// A unit of work: queries of one batch and head, some of their channels.
struct TileUnit {
  int number = 0, batch = 0, head = 0, box = 0, query = 0;

  TileUnit() = default;
  __device__ TileUnit(const TileArguments& arguments, int number) : number(number) {
    const MsDeformAttnSizes& sizes = arguments.inputs.sizes;
    const TileBox& tile = arguments.box;
    const unsigned groups = (static_cast<unsigned>(sizes.queries) + tile.rows() - 1) >>
                            tile.log_rows();
    const unsigned plane = static_cast<unsigned>(number) / groups, batch_head = plane / tile.count;
    query = static_cast<int>((static_cast<unsigned>(number) - plane * groups) << tile.log_rows());
    box = static_cast<int>(plane - batch_head * tile.count);
    batch = static_cast<int>(batch_head / static_cast<unsigned>(sizes.heads));
    head = static_cast<int>(batch_head - batch * static_cast<unsigned>(sizes.heads));
  }

  /// That of another lane.
  __device__ TileUnit of_lane(int lane) const {
    constexpr unsigned kAll = 0xffffffffu;
    TileUnit other;
    other.number = __shfl_sync(kAll, number, lane);
    other.batch = __shfl_sync(kAll, batch, lane);
    other.head = __shfl_sync(kAll, head, lane);
    other.box = __shfl_sync(kAll, box, lane);
    other.query = __shfl_sync(kAll, query, lane);
    return other;
  }

  __device__ bool has_row(const MsDeformAttnSizes& sizes, int slot) const {
    return query + slot < sizes.queries;
  }
  /// [batch, query, head] of a row.
  __device__ int64_t row(const MsDeformAttnSizes& sizes, int slot) const {
    return (batch * sizes.queries + query + slot) * sizes.heads + head;
  }
};

/// The named barrier of a consumer's stage; 0 is __syncthreads()'s.
template <int kStages>
__device__ __forceinline__ int stage_barrier(int consumer, int stage) {
  return 1 + consumer * kStages + stage;
}

}  // namespace warpfuse::lab
