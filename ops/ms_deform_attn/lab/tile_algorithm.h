#pragma once

#include <cuda.h>

#include <cstdint>

#include "ms_deform_attn/ms_deform_attn.h"

namespace warpfuse::lab {

/// What a producer waits for before it fills a stage again.
enum class EmptySignal {
  mbarrier,  // of the stage
  named,     // a named barrier per stage, of the producer's and the consumer's warp
  block,     // __syncthreads(), once per batch of points
};

inline constexpr int kMaxWarps = 16;       // of a block
inline constexpr int kNamedBarriers = 15;  // beside that of __syncthreads()

/// An algorithm that reads 2 x 2 pixels by the TMA unit. Without producers, each warp is producer
/// and consumer at once.
struct TileAlgorithm {
  bool is_design = false;            // design_kernel.cuh, which has no options
  int producers = 0, consumers = 4;  // warps of a block
  int stages = 1;                    // per consumer: 1, 2 or 4
  int point_buffers = 2;             // 2: the next points are read while these are copied
  bool atomic_scheduler = false;     // units of work in the order of demand
  bool shift_registers = false;      // from producers to consumers, by setmaxnreg
  EmptySignal empty_signal = EmptySignal::mbarrier;

  bool has_roles() const { return producers > 0; }
  WARPFUSE_HOST_DEVICE int warps() const { return producers + consumers; }
};

/// The part of a pixel's channels of one head that a copy moves.
struct TileBox {
  int bytes;           // a multiple of 16, at most 128
  int count;           // of boxes that cover a head
  int tile_bytes;      // of four pixels in shared memory, a multiple of 128
  unsigned log_lanes;  // of lanes that hold it, 16 bytes each

  TileBox(const MsDeformAttnSizes& sizes, DType dtype);

  WARPFUSE_HOST_DEVICE unsigned log_rows() const { return 5 - log_lanes; }
  /// Rows (queries of one batch and head) of a warp.
  WARPFUSE_HOST_DEVICE int rows() const { return static_cast<int>(32U >> log_lanes); }
  /// Points of each row that a warp reads at a time: one per lane.
  WARPFUSE_HOST_DEVICE int batch_points() const { return static_cast<int>(1U << log_lanes); }
  /// Points of each row in a stage.
  WARPFUSE_HOST_DEVICE int stage_points() const { return log_lanes == 0 ? 1 : 2; }
  WARPFUSE_HOST_DEVICE int stages_per_batch() const {
    return log_lanes == 0 ? 1 : batch_points() / 2;
  }
};

struct TileArguments {
  MsDeformAttnInputs inputs;
  void* output;  // [batches, queries, heads, channels]
  TileBox box;
  int units;                // of work: [batches, heads, boxes, groups of box.rows() queries]
  CUtensorMap* level_maps;  // [blocks, levels], written by the blocks
  unsigned* next_unit;      // the atomic scheduler's counter, 0 at first; else null
  TileAlgorithm algorithm;
};

/// Blocks that fill the GPU, for whose maps arguments.level_maps must have room.
cudaError_t tile_blocks(const TileArguments& arguments, int& blocks);
cudaError_t launch_tiles(const TileArguments& arguments, int blocks, cudaStream_t stream);

}  // namespace warpfuse::lab
