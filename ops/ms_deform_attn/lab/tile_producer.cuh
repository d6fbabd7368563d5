#pragma once

#include "hopper/tma.cuh"
#include "ms_deform_attn/deform_rows.cuh"
#include "ms_deform_attn/lab/tile_stage.cuh"

namespace warpfuse::lab {

/// True in one lane of a converged warp. Code behind it stays uniform, unlike behind lane == 0.
__device__ __forceinline__ bool is_elected() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

/// A warp that fills the stages of some consumers: it computes the places of points, one per lane,
/// and starts the copies of their pixels. Batches of points take turns among the consumers.
template <typename T, int kStages>
class TileProducer {
  using C = Compute<T>;
  using Block = TileBlock<kStages>;

 public:
  /// Of consumers first, first + step ..
  __device__ TileProducer(const TileArguments& arguments, const Block& block, int first, int step)
      : arguments_(arguments),
        block_(block),
        first_(first),
        step_(step),
        count_((arguments.algorithm.consumers - first + step - 1) / step),
        row_points_(static_cast<int>(arguments.inputs.sizes.row_points())),
        turn_(block.first_stage(first)),
        cursor_(turn_) {
    for (int level = 0; level < arguments.inputs.sizes.levels; ++level) {
      acquire_level_map(block.maps + level);
    }
    units_ = next_units();
    next_units_ = next_units();
    if (arguments_.algorithm.point_buffers > 1) {
      location_ = load();
    }
  }

  /// Fills a stage. False if there is none left: consumers have been told.
  __device__ bool fill() {
    if (batch_stage_ == 0 && !begin_batch()) {
      return false;
    }
    const TileBox& box = arguments_.box;
    const int first = batch_point_ + batch_stage_ * box.stage_points();
    const int points = min(box.stage_points(), row_points_ - first);
    const int first_lane = batch_stage_ * box.stage_points() << box.log_rows();
    const bool has_tiles = batch_unit_ < arguments_.units;
    const TileStage stage = wait_for_stage();
    const int lane = cuda::DeformLanes::lane(), entry = lane - first_lane;
    if (entry >= 0 && entry < points << box.log_rows()) {
      stage.point<C>(entry) = place_;
    }
    if (lane == 0) {
      stage.unit() = batch_unit_;
    }
    __syncwarp();
    if (is_elected()) {
      cursor_.full().arrive_expect_bytes(has_tiles ? (points << box.log_rows()) * 4 * box.bytes
                                                   : 0);
    }
    if (has_tiles) {
      const TileUnit unit(arguments_, batch_unit_);
      unsigned tile = cursor_.stage();
      const int channel = unit.box * box.bytes / static_cast<int>(sizeof(T));
      for (int i = 0; i < points; ++i) {
        const CUtensorMap* const map =
            block_.maps + static_cast<unsigned>(first + i) /
                              static_cast<unsigned>(arguments_.inputs.sizes.points);
#pragma unroll 4
        for (int slot = 0; slot < box.rows(); ++slot) {
          const int source = first_lane + (i << box.log_rows()) + slot;
          const int left = __shfl_sync(0xffffffffu, left_, source);
          const int top = __shfl_sync(0xffffffffu, top_, source);
          if (is_elected()) {
            cuda::tma_load_5d(tile, map, {channel, unit.head, left, top, unit.batch},
                              cursor_.full());
          }
          tile += box.tile_bytes;
        }
      }
    }
    end_stage(first + points);
    return true;
  }

 private:
  struct Location {
    C x, y, weight;
  };

  // --- units of work --------------------------------------------------------------------------

  /// The next unit of this lane's consumer.
  __device__ int next_units() {
    const TileAlgorithm& algorithm = arguments_.algorithm;
    const int lane = cuda::DeformLanes::lane();
    if (!algorithm.atomic_scheduler) {
      const int round = round_++;
      const int64_t first =
          (int64_t{round} * gridDim.x + blockIdx.x) * algorithm.consumers + first_;
      return static_cast<int>(min(first + lane * step_, int64_t{INT32_MAX}));
    }
    return lane < count_ ? static_cast<int>(min(atomicAdd(arguments_.next_unit, 1u),
                                                unsigned{INT32_MAX}))
                         : INT32_MAX;
  }

  /// Whether the block has a unit in this round: all its warps take part in as many rounds where
  /// the scheduler is static.
  __device__ bool has_units() const {
    if (!arguments_.algorithm.atomic_scheduler) {
      return __shfl_sync(0xffffffffu, units_, 0) - first_ < arguments_.units;
    }
    return __any_sync(0xffffffffu, units_ < arguments_.units);
  }

  // --- points ---------------------------------------------------------------------------------

  /// This lane's point of the batch at point_ of consumer_.
  __device__ Location load() const {
    const int unit = __shfl_sync(0xffffffffu, units_, consumer_);
    const TileUnit rows(arguments_, min(unit, arguments_.units - 1));
    const int slot = lane_slot(), point = point_ + lane_point();
    const MsDeformAttnInputs& in = arguments_.inputs;
    Location location{-1, -1, 0};  // outside
    if (unit < arguments_.units && rows.has_row(in.sizes, slot) && point < row_points_) {
      const int64_t index = rows.row(in.sizes, slot) * row_points_ + point;
      cuda::load_pair_as<T>(in.sampling_locations, in.location_dtype, index, location.x,
                            location.y);
      location.weight = cuda::load_as<T>(in.attention_weights, in.weight_dtype, index);
    }
    return location;
  }

  /// left_, top_ and place_. A tile without a pixel of the level is read as zeros.
  __device__ void locate(const Location& location, int point) {
    constexpr int kOutside = -2;
    left_ = top_ = kOutside;
    place_ = {0, 0, location.weight};
    if (point >= row_points_) {
      return;
    }
    const TileLevel tile(arguments_.inputs,
                         point / static_cast<int>(arguments_.inputs.sizes.points));
    const C width = static_cast<C>(tile.width), height = static_cast<C>(tile.level.height);
    const C x = location.x * width - C(0.5), y = location.y * height - C(0.5);
    if (tile.width > 0 && x >= -1 && x < width && y >= -1 && y < height) {
      left_ = static_cast<int>(floor(x));
      top_ = static_cast<int>(floor(y));
      place_.x = x - static_cast<C>(left_);
      place_.y = y - static_cast<C>(top_);
    }
  }

  __device__ int lane_slot() const {
    return cuda::DeformLanes::lane() & (arguments_.box.rows() - 1);
  }
  __device__ int lane_point() const {
    return cuda::DeformLanes::lane() >> arguments_.box.log_rows();
  }

  // --- the order of batches and stages --------------------------------------------------------

  __device__ bool begin_batch() {
    if (is_finished_ || (consumer_ == 0 && point_ == 0 && !has_units())) {
      finish();
      return false;
    }
    if (consumer_ == 0 && arguments_.algorithm.empty_signal == EmptySignal::block &&
        turns_++ >= turns_in_flight()) {
      __syncthreads();
    }
    if (arguments_.algorithm.point_buffers == 1) {
      location_ = load();
    }
    locate(location_, point_ + lane_point());
    batch_unit_ = __shfl_sync(0xffffffffu, units_, consumer_);
    batch_point_ = point_;
    cursor_ = block_.moved(turn_, first_ + consumer_ * step_);
    batch_consumer_ = consumer_;
    if (++consumer_ == count_) {
      consumer_ = 0;
      point_ += arguments_.box.batch_points();
      if (point_ >= row_points_) {
        point_ = 0;
        units_ = next_units_;
        next_units_ = next_units();
      }
    }
    if (arguments_.algorithm.point_buffers > 1) {
      location_ = load();
    }
    return true;
  }

  __device__ void end_stage(int end_point) {
    cursor_.advance();
    ++filled_;
    if (++batch_stage_ == arguments_.box.stages_per_batch() || end_point >= row_points_) {
      if (batch_consumer_ == count_ - 1) {
        turn_ = cursor_;
        turn_filled_ += batch_stage_;
      }
      filled_ = turn_filled_;
      batch_stage_ = 0;
    }
  }

  /// Turns of all consumers that fit in the rings.
  __device__ int turns_in_flight() const { return kStages / arguments_.box.stages_per_batch(); }

  __device__ TileStage wait_for_stage() {
    const EmptySignal signal = arguments_.algorithm.empty_signal;
    if (signal == EmptySignal::mbarrier) {
      cursor_.producer_wait();
    } else if (signal == EmptySignal::named && filled_ >= kStages) {
      asm volatile("bar.sync %0, 64;" ::"r"(stage_barrier<kStages>(
                       first_ + batch_consumer_ * step_, cursor_.index()))
                   : "memory");
    }
    return block_.stage(cursor_);
  }

  /// Tells all consumers by a stage of unit -1.
  __device__ void finish() {
    if (is_finished_) {
      return;
    }
    is_finished_ = true;
    if (arguments_.algorithm.empty_signal == EmptySignal::block) {
      for (int turn = min(turns_, turns_in_flight()); turn > 0; --turn) {
        __syncthreads();
      }
    }
    for (batch_consumer_ = 0; batch_consumer_ < count_; ++batch_consumer_) {
      cursor_ = block_.moved(turn_, first_ + batch_consumer_ * step_);
      const TileStage stage = wait_for_stage();
      if (is_elected()) {
        stage.unit() = -1;
        cursor_.full().arrive_expect_bytes(0);
      }
      __syncwarp();
    }
  }

  const TileArguments& arguments_;
  const Block& block_;
  int first_, step_, count_, row_points_;
  // The next batch to be loaded; units in the lane of each consumer.
  int units_, next_units_, round_ = 0, consumer_ = 0, point_ = 0;
  Location location_;
  // The batch whose stages are being filled; left_, top_ and place_ are those of this lane's point.
  int batch_unit_ = 0, batch_point_ = 0, batch_consumer_ = 0, batch_stage_ = 0;
  int left_ = 0, top_ = 0;
  TilePoint<C> place_;
  // Positions in the rings, and the stages of one consumer that were filled before.
  typename Block::Cursor turn_, cursor_;
  int filled_ = 0, turn_filled_ = 0, turns_ = 0;
  bool is_finished_ = false;
};

}  // namespace warpfuse::lab
