#pragma once

#include "ms_deform_attn/deform_rows.cuh"
#include "ms_deform_attn/lab/tile_stage.cuh"

namespace warpfuse::lab {

/// A warp that interpolates between the pixels of its stages and sums up. Each of its rows has as
/// many lanes as a box has 16-byte vectors, or the next power of two.
template <typename T, int kStages>
class TileConsumer {
  using C = Compute<T>;
  using Block = TileBlock<kStages>;
  static constexpr int kVector = cuda::kPack<T>;

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
        add(cursor_.stage() + index * box.tile_bytes, stage.point<C>(index));
      }
    }
    __syncwarp();
    release();
    cursor_.advance();
    point_ += points;
    const bool ends_batch = (point_ & (box.batch_points() - 1)) == 0 || point_ == row_points;
    if (point_ == row_points) {
      if (unit < arguments_.units) {
        store(TileUnit(arguments_, unit));
      }
      point_ = 0;
    }
    if (ends_batch && arguments_.algorithm.empty_signal == EmptySignal::block) {
      __syncthreads();
    }
    return true;
  }

 private:
  /// Rows read the four pixels in different orders, so that neighbouring rows do not find theirs in
  /// the same banks.
  __device__ void add(unsigned tile, const TilePoint<C>& point) {
    const bool swaps_x = slot_ & 1, swaps_y = slot_ & 2;
    const C x[2] = {swaps_x ? point.x : 1 - point.x, swaps_x ? 1 - point.x : point.x};
    const C y[2] = {swaps_y ? point.y : 1 - point.y, swaps_y ? 1 - point.y : point.y};
    C sampled[kVector] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int corner = i ^ (slot_ & 3);
      C values[kVector];
      cuda::unpack<T>(cuda::load_shared_16_bytes(tile + corner * arguments_.box.bytes + byte_),
                      values);
      const C weight = x[i % 2] * y[i / 2];
#pragma unroll
      for (int c = 0; c < kVector; ++c) {
        sampled[c] += weight * values[c];
      }
    }
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      sum_[c] += point.weight * sampled[c];
    }
  }

  __device__ void release() {
    switch (arguments_.algorithm.empty_signal) {
      case EmptySignal::mbarrier:
        if (cuda::DeformLanes::lane() == 0) {
          cursor_.consumer_release();
        }
        return;
      case EmptySignal::named:
        asm volatile(
            "bar.arrive %0, 64;" ::"r"(stage_barrier<kStages>(consumer_, cursor_.index()))
            : "memory");
        return;
      case EmptySignal::block:
        return;
    }
  }

  __device__ void store(const TileUnit& unit) {
    const MsDeformAttnSizes& sizes = arguments_.inputs.sizes;
    const int byte = unit.box * arguments_.box.bytes + byte_;
    const int row_bytes = static_cast<int>(sizes.channels * sizeof(T));
    if (unit.has_row(sizes, slot_) && byte_ < arguments_.box.bytes && byte < row_bytes) {
      cuda::store_16_bytes(
          static_cast<char*>(arguments_.output) + unit.row(sizes, slot_) * row_bytes + byte,
          cuda::pack_bits<T>(sum_));
    }
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      sum_[c] = 0;
    }
  }

  const TileArguments& arguments_;
  const Block& block_;
  int consumer_, slot_, byte_, point_ = 0;
  typename Block::Cursor cursor_;
  C sum_[kVector] = {};
};

}  // namespace warpfuse::lab
