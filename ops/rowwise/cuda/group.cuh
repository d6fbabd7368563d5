#pragma once

#include <cooperative_groups.h>

#include <type_traits>

#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

/// 1, 2, 4 .. 32 neighbouring lanes of a warp that share a row. All lanes of the warp take part in
/// what one group does.
class LaneGroup {
 public:
  __device__ explicit LaneGroup(int lanes) : lanes_(lanes) {}

  __device__ int size() const { return lanes_; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x) & (lanes_ - 1); }
  __device__ const LaneGroup& lanes() const { return *this; }

  template <typename C>
  __device__ C max(C value) const {
    return reduce(value, [](C a, C b) { return larger(a, b); });
  }

  template <typename C>
  __device__ C sum(C value) const {
    return reduce(value, [](C a, C b) { return a + b; });
  }

  __device__ bool any(bool value) const {
    const unsigned votes = __ballot_sync(0xffffffffu, value);
    const unsigned here = threadIdx.x % 32 & ~static_cast<unsigned>(lanes_ - 1);
    return (votes >> here & (lanes_ == 32 ? 0xffffffffu : (1u << lanes_) - 1)) != 0;
  }

  /// The total of what the group's warps found: there is one.
  template <typename Function>
  __device__ typename Function::Summary total(const Function&,
                                              const typename Function::Summary& of_warp) const {
    return of_warp;
  }

 private:
  template <typename C, typename Combine>
  __device__ C reduce(C value, const Combine& combine) const {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      if (offset < lanes_) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
      }
    }
    return value;
  }

  int lanes_;
};

/// All lanes of a warp.
class Warp : public LaneGroup {
 public:
  __device__ Warp() : LaneGroup(32) {}

  __device__ const Warp& lanes() const { return *this; }

  template <typename C>
  __device__ C max(C value) const {
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<C, float>) {  // one instruction for ten, five of them shuffles
      const int order = in_order(__float_as_int(larger(value, negative_infinity<float>())));
      return __int_as_float(in_order(__reduce_max_sync(0xffffffffu, order)));
    }
#endif
    return LaneGroup::max(value);
  }

 private:
  /// From the bits of a float to an integer that is greater where the float is, and back.
  __device__ static int in_order(int bits) { return bits ^ (bits >> 31 & 0x7fffffff); }
};

/// All threads of a block, or of the blocks of a cluster, share a row.
class BlockGroup {
 public:
  __device__ explicit BlockGroup(int blocks) : blocks_(blocks) {
    if (blocks_ > 1) {
      block_ = rank_in_cluster();
      arrive();  // total() will write to the other blocks' memory: they must be running by then
    }
  }

  __device__ int blocks() const { return blocks_; }
  __device__ int block() const { return block_; }
  /// Before the first write to another block's memory.
  __device__ void wait_for_start() {
    if (!started_) {
      wait();
      started_ = true;
    }
  }

  /// Which of the grid's groups this is, and how many there are.
  __device__ int index() const {
    return static_cast<int>(blocks_ > 1 ? cluster_index() : blockIdx.x);
  }
  __device__ int groups() const {
    return static_cast<int>(blocks_ > 1 ? gridDim.x / blocks_ : gridDim.x);
  }

  __device__ int size() const { return blocks_ * static_cast<int>(blockDim.x); }
  __device__ int rank() const {
    return block_ * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  }
  /// The lanes of this thread's warp.
  __device__ const Warp& lanes() const { return lanes_; }

  /// The total of what the warps found, the same in every thread.
  template <typename Function>
  __device__ typename Function::Summary total(const Function& function,
                                              const typename Function::Summary& of_warp) {
    using Summary = typename Function::Summary;
    // Two of each in turn: a warp that is ahead by a row writes where no other still reads.
    __shared__ Summary of_warps_in_turn[2][32];
    __shared__ Summary of_blocks_in_turn[2][16];
    Summary* const of_warps = of_warps_in_turn[turn_];
    Summary* const of_blocks = of_blocks_in_turn[turn_];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) {
      of_warps[warp] = of_warp;
    }
    __syncthreads();
    Summary sum = function.merge(
        lanes_, lane < static_cast<int>(blockDim.x) / 32 ? of_warps[lane] : Function::nothing());
    if (blocks_ > 1) {
      wait_for_start();
      if (static_cast<int>(threadIdx.x) < blocks_) {
        remote(of_blocks, static_cast<int>(threadIdx.x))[block_] = sum;
      }
      arrive();
      wait();
      sum = function.merge(lanes_, lane < blocks_ ? of_blocks[lane] : Function::nothing());
    }
    turn_ ^= 1;
    return sum;
  }

  // Clusters are Hopper's; for older GPUs no launch has more than one block a row.
#if __CUDA_ARCH__ >= 900
  __device__ static int rank_in_cluster() {
    return static_cast<int>(cooperative_groups::this_cluster().block_rank());
  }
  __device__ static unsigned cluster_index() {
    unsigned index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
  }
  __device__ static void arrive() { cooperative_groups::this_cluster().barrier_arrive(); }
  __device__ static void wait() { cooperative_groups::this_cluster().barrier_wait(); }
  template <typename S>
  __device__ static S* remote(S* shared, int block) {
    return cooperative_groups::this_cluster().map_shared_rank(shared, block);
  }
#else
  __device__ static int rank_in_cluster() { return 0; }
  __device__ static unsigned cluster_index() { return 0; }
  __device__ static void arrive() {}
  __device__ static void wait() {}
  template <typename S>
  __device__ static S* remote(S* shared, int) {
    return shared;
  }
#endif

 private:
  int blocks_;
  int block_ = 0;
  int turn_ = 0;
  bool started_ = false;
  Warp lanes_;
};

}  // namespace warpfuse::cuda
