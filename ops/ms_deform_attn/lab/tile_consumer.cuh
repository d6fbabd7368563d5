#pragma once

#include "ms_deform_attn/lab/tile_point.cuh"
#include "ms_deform_attn/lab/tile_stage.cuh"

namespace warpfuse::lab {

/// A warp that interpolates between the pixels of its stages and sums up. Each of its rows has as
/// many lanes as a box has 16-byte vectors, or the next power of two.
template <typename T, int kStages>
class TileConsumer {
  using C = Compute<T>;
  using Block = TileBlock<kStages>;

 public:
  __device__ TileConsumer(const TileArguments& arguments, const Block& block, int consumer)
      : arguments_(arguments),
        block_(block),
        consumer_(consumer),
        cursor_(block.first_stage(consumer)) {
    const int lane = cuda::DeformLanes::lane();
    slot_ = lane >> arguments_.box.log_lanes;
    byte_ = (lane - (slot_ << arguments_.box.log_lanes)) * 16;
  }

  /// Takes a stage. False after the last.
  __device__ bool consume() {
    const TileBox& box = arguments_.box;
    cursor_.consumer_wait();
    const TileStage stage = block_.stage(cursor_);
    const int unit = stage.unit();
    if (unit < 0) {
      return false;
    }
    const int row_points = static_cast<int>(arguments_.inputs.sizes.row_points());
    const int points = min(box.stage_points(), row_points - point_);
    if (unit < arguments_.units && byte_ < box.bytes) {
      for (int i = 0; i < points; ++i) {
        const int index = (i << box.log_rows()) + slot_;
        add_tile<T>(sum_, cursor_.stage() + index * box.tile_bytes, stage.point<C>(index), slot_,
                    byte_, box.bytes);
      }
    }
    __syncwarp();
    release();
    cursor_.advance();
    point_ += points;
    const bool ends_batch = (point_ & (box.batch_points() - 1)) == 0 || point_ == row_points;
    if (point_ == row_points) {
      if (unit < arguments_.units) {
        store_tile_row<T>(arguments_, TileUnit(arguments_, unit), slot_, byte_, sum_);
      }
#pragma unroll
      for (C& sum : sum_) {
        sum = 0;
      }
      point_ = 0;
    }
    if (ends_batch && arguments_.algorithm.empty_signal == EmptySignal::block) {
      __syncthreads();
    }
    return true;
  }

 private:
  __device__ void release() {
    switch (arguments_.algorithm.empty_signal) {
      case EmptySignal::mbarrier:
        if (cuda::DeformLanes::lane() == 0) {
          cursor_.consumer_release();
        }
        return;
      case EmptySignal::named:
        asm volatile("bar.arrive %0, 64;" ::"r"(stage_barrier<kStages>(consumer_, cursor_.index()))
                     : "memory");
        return;
      case EmptySignal::block:
        return;
    }
  }

  const TileArguments& arguments_;
  const Block& block_;
  int consumer_, slot_, byte_, point_ = 0;
  typename Block::Cursor cursor_;
  C sum_[cuda::kPack<T>] = {};
};

}  // namespace warpfuse::lab
