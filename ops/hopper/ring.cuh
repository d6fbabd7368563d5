#pragma once

#include "hopper/mbarrier.cuh"

namespace warpfuse::cuda {

// A ring of stages in shared memory between one producer thread, which fills them with
// asynchronous copies, and the warps that consume them (warp specialisation).

/// The barriers of a ring of kStages stages of kStageBytes. Lies in shared memory; the stages lie
/// elsewhere.
template <int kStageCount, int kBytes>
struct Ring {
  static constexpr int kStages = kStageCount, kStageBytes = kBytes;
  Mbarrier full[kStages], empty[kStages];

  /// As Mbarrier::init(). A stage is empty again after `releases` calls of consumer_release().
  __device__ void init(int releases) {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(releases);
    }
  }
};

/// A thread's position in a ring whose first stage is at the shared address `stages`. The producer
/// and each consumer thread have one. Per stage, before advance():
///
/// - the producer calls producer_wait() and full().arrive_expect_bytes(), and starts copies of so
///   many bytes to stage() that arrive at full();
/// - a consumer calls consumer_wait(), reads stage(), and calls consumer_release().
template <typename Ring>
class RingCursor {
 public:
  __device__ RingCursor(Ring& ring, unsigned stages) : ring_(&ring), stages_(stages) {}

  /// The same position in another ring, for a producer of several.
  __device__ RingCursor in(Ring& ring, unsigned stages) const {
    RingCursor other = *this;
    other.ring_ = &ring;
    other.stages_ = stages;
    return other;
  }

  /// The shared address of the current stage.
  __device__ unsigned stage() const {
    return stages_ + static_cast<unsigned>(index_) * Ring::kStageBytes;
  }
  __device__ int index() const { return index_; }
  __device__ Mbarrier& full() { return ring_->full[index_]; }

  /// Waits until the stage is empty; in the first round it is.
  __device__ void producer_wait() { ring_->empty[index_].wait(parity_ ^ 1); }
  /// Waits until the expected bytes have arrived.
  __device__ void consumer_wait() { full().wait(parity_); }
  __device__ void consumer_release() { ring_->empty[index_].arrive(); }
  /// Releases the stage to the producer of block `block` of the cluster.
  __device__ void consumer_release(unsigned block) { ring_->empty[index_].arrive_remote(block); }

  __device__ void advance() {
    if (++index_ == Ring::kStages) {
      index_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  Ring* ring_;
  unsigned stages_;
  int index_ = 0;
  unsigned parity_ = 0;  // of the round
};

}  // namespace warpfuse::cuda
