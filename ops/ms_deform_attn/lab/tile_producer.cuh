#pragma once

#include "hopper/tma.cuh"
#include "ms_deform_attn/lab/tile_point.cuh"
#include "ms_deform_attn/lab/tile_stage.cuh"

namespace warpfuse::lab {

/// A warp that fills the stages of some consumers: it computes the places of points, one per lane,
/// and starts the copies of their pixels. Batches of points take turns among consumers, if they are
/// several.
template <typename T, int kStages, bool kSeveral>
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
        count_(kSeveral ? (arguments.algorithm.consumers - first + step - 1) / step : 1),
        row_points_(static_cast<int>(arguments.inputs.sizes.row_points())),
        turn_(block.first_stage(first)),
        cursor_(turn_) {
    acquire_level_maps(block.maps, arguments.inputs);
    next_number_ = next_number();
    next_units();
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
    const TileStage stage = wait_for_stage();
    const int lane = cuda::DeformLanes::lane(), entry = lane - first_lane;
    if (entry >= 0 && entry < points << box.log_rows()) {
      stage.point<C>(entry) = place_;
      stage.corners()[entry] = corner_;
    }
    if (lane == 0) {
      stage.unit() = batch_number_;
    }
    __syncwarp();
    if (batch_number_ >= arguments_.units) {
      if (cuda::is_elected()) {
        cursor_.full().arrive_expect_bytes(0);
      }
    } else {
      start_copies(stage, points);
    }
    end_stage(first + points);
    return true;
  }

 private:
  // --- units of work --------------------------------------------------------------------------

  /// units_ of the next round, whose numbers were asked for in time.
  __device__ void next_units() {
    units_ = TileUnit(arguments_, min(next_number_, arguments_.units - 1));
    units_.number = next_number_;
    next_number_ = next_number();
  }

  /// Of the next unit of this lane's consumer.
  __device__ int next_number() {
    const TileAlgorithm& algorithm = arguments_.algorithm;
    const int lane = cuda::DeformLanes::lane();
    if (!algorithm.atomic_scheduler) {
      const int64_t block = int64_t{round_++} * gridDim.x + blockIdx.x;
      const int64_t number = block * algorithm.consumers + first_ + (kSeveral ? lane * step_ : 0);
      return static_cast<int>(min(number, int64_t{INT32_MAX}));
    }
    if (!kSeveral) {
      const int number = lane == 0 ? static_cast<int>(atomicAdd(arguments_.next_unit, 1u)) : 0;
      return __shfl_sync(0xffffffffu, number, 0);
    }
    return lane < count_
               ? static_cast<int>(min(atomicAdd(arguments_.next_unit, 1u), unsigned{INT32_MAX}))
               : INT32_MAX;
  }

  /// Whether the block has a unit in this round: all its warps take part in as many rounds where
  /// the scheduler is static.
  __device__ bool has_units() const {
    if (!arguments_.algorithm.atomic_scheduler) {
      return __shfl_sync(0xffffffffu, units_.number, 0) - first_ < arguments_.units;
    }
    return __any_sync(0xffffffffu, units_.number < arguments_.units);
  }

  // --- points and copies ----------------------------------------------------------------------

  /// This lane's point of the batch at point_ of consumer_. Sets unit_.
  __device__ TileLocation<C> load() {
    unit_ = kSeveral ? units_.of_lane(consumer_) : units_;
    return load_location<T>(arguments_, unit_, lane_slot(), point_ + lane_point());
  }

  __device__ int lane_slot() const {
    return cuda::DeformLanes::lane() & (arguments_.box.rows() - 1);
  }
  __device__ int lane_point() const {
    return cuda::DeformLanes::lane() >> arguments_.box.log_rows();
  }

  /// The copies of a stage, by one lane: those of a lane which is not known to be alone would be
  /// a loop over lanes.
  __device__ void start_copies(const TileStage& stage, int points) {
    const TileBox& box = arguments_.box;
    constexpr int kCopies = 4;  // rows are a multiple of it
    if (cuda::is_elected()) {
      cursor_.full().arrive_expect_bytes((points << box.log_rows()) * 4 * box.bytes);
      unsigned tile = cursor_.stage();
      const int2* corners = stage.corners();
      for (int i = 0; i < points; ++i) {
        const CUtensorMap* const map = block_.maps + stage.point<C>(i << box.log_rows()).level;
        for (int slot = 0; slot < box.rows(); slot += kCopies, corners += kCopies) {
          int2 corner[kCopies];
#pragma unroll
          for (int k = 0; k < kCopies; ++k) {
            corner[k] = corners[k];
          }
#pragma unroll
          for (int k = 0; k < kCopies; ++k) {
            cuda::tma_load_4d(tile, map, {batch_channel_, corner[k].x, corner[k].y, batch_image_},
                              cursor_.full());
            tile += box.tile_bytes;
          }
        }
      }
    }
    __syncwarp();
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
    const int point = point_ + lane_point();
    locate(location_, point, arguments_, block_.levels, place_, corner_);
    batch_number_ = unit_.number;
    batch_image_ = unit_.batch;
    batch_channel_ = unit_.channel(arguments_);
    batch_point_ = point_;
    if (kSeveral) {
      cursor_ = block_.moved(turn_, first_ + consumer_ * step_);
      batch_consumer_ = consumer_;
    }
    if (++consumer_ == count_) {
      consumer_ = 0;
      point_ += arguments_.box.batch_points();
      if (point_ >= row_points_) {
        point_ = 0;
        next_units();
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
      if (kSeveral && batch_consumer_ == count_ - 1) {
        turn_ = cursor_;
        turn_filled_ += batch_stage_;
      }
      if (kSeveral) {
        filled_ = turn_filled_;
      }
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
      asm volatile("bar.sync %0, 64;" ::"r"(
                       stage_barrier<kStages>(first_ + batch_consumer_ * step_, cursor_.index()))
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
      if (kSeveral) {
        cursor_ = block_.moved(turn_, first_ + batch_consumer_ * step_);
      }
      const TileStage stage = wait_for_stage();
      if (cuda::is_elected()) {
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
  TileUnit units_;
  int next_number_, round_ = 0, consumer_ = 0, point_ = 0;
  TileUnit unit_;  // of consumer_
  TileLocation<C> location_;
  // The batch whose stages are being filled; corner_ and place_ are those of this lane's point.
  int batch_number_ = 0, batch_image_ = 0, batch_channel_ = 0;
  int batch_point_ = 0, batch_consumer_ = 0, batch_stage_ = 0;
  int2 corner_ = {};
  TilePoint<C> place_;
  // Positions in the rings, and the stages of one consumer that were filled before.
  typename Block::Cursor turn_, cursor_;
  int filled_ = 0, turn_filled_ = 0, turns_ = 0;
  bool is_finished_ = false;
};

}  // namespace warpfuse::lab
