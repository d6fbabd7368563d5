#pragma once

#include <cooperative_groups.h>

#include <type_traits>

#include "hopper/mbarrier.cuh"
#include "rowwise/cuda/math.cuh"

namespace warpfuse::cuda {

// The threads that share a row, and their reductions.

/// 1, 2, 4 .. 32 neighbouring lanes of a warp. All lanes of the warp call its functions together.
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

  /// A lane group lies within one warp, whose partial is the total.
  template <typename Function, typename Partial>
  __device__ Partial total(const Function&, const Partial& warp_partial) const {
    return warp_partial;
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

/// Lanes that share a row of the tier chunk, often one alone: its reductions are one branch.
class ChunkLanes : public LaneGroup {
 public:
  using LaneGroup::LaneGroup;

  __device__ const ChunkLanes& lanes() const { return *this; }

  template <typename C>
  __device__ C max(C value) const {
    return size() == 1 ? value : LaneGroup::max(value);
  }

  template <typename C>
  __device__ C sum(C value) const {
    return size() == 1 ? value : LaneGroup::sum(value);
  }
};

/// All lanes of a warp.
class Warp : public LaneGroup {
 public:
  __device__ Warp() : LaneGroup(32) {}

  __device__ const Warp& lanes() const { return *this; }

  template <typename C>
  __device__ C max(C value) const {
    if constexpr (std::is_same_v<C, float>) {  // one redux instruction in place of ten
      const int ordered = to_ordered(__float_as_int(larger(value, negative_infinity<float>())));
      return __int_as_float(to_ordered(__reduce_max_sync(0xffffffffu, ordered)));
    } else {
      return LaneGroup::max(value);
    }
  }

 private:
  /// Maps the bits of floats to integers of the same order, and back.
  __device__ static int to_ordered(int bits) { return bits ^ (bits >> 31 & 0x7fffffff); }
};

/// All threads of a block, or of the blocks of a cluster.
class BlockGroup {
 public:
  /// totals: total() will be called.
  __device__ explicit BlockGroup(int blocks, bool totals = true) : blocks_(blocks) {
    if (blocks_ > 1) {
      block_ = rank_in_cluster();
#if __CUDA_ARCH__ >= 900
      if (totals && threadIdx.x == 0) {
        arrivals()[0].init(1);
        arrivals()[1].init(1);
        fence_mbarrier_init();
      }
      // Others write to this block's shared memory: they must know that it has started. Relaxed, as
      // an arrival that releases waits at a fence of the whole GPU, before the first load.
      arrive_at_cluster_relaxed();
#endif
    }
  }

  __device__ int blocks() const { return blocks_; }
  __device__ int block() const { return block_; }
  /// Comes before the first write to another block's shared memory.
  __device__ void wait_for_start() {
    if (!started_) {
      wait();
      started_ = true;
    }
  }

  /// The group's index in the grid, and the number of groups.
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

  /// The total of the partials of all warps, the same in every thread; `function` merges them.
  template <typename Function, typename Partial>
  __device__ Partial total(const Function& function, const Partial& warp_partial) {
    const int turn = turn_ & 1, warp = static_cast<int>(threadIdx.x) / 32,
              lane = static_cast<int>(threadIdx.x) % 32;
    Partial* const warp_partials = exchange<Partial, 32>(turn);
    if (lane == 0) {
      warp_partials[warp] = warp_partial;
    }
    __syncthreads();
    Partial total = function.merge(
        lanes_, lane < static_cast<int>(blockDim.x) / 32 ? warp_partials[lane] : Partial::none());
    if (blocks_ > 1) {
      const Sent<Partial>* const block_partials = send(total, turn);
      total =
          function.merge(lanes_, lane < blocks_ ? block_partials[lane].partial : Partial::none());
    }
    ++turn_;
    return total;
  }

  /// All threads of the group have arrived here, and see each other's writes to shared memory.
  __device__ void sync() const {
    if (blocks_ > 1) {
      arrive();
      wait();
    } else {
      __syncthreads();
    }
  }

  // Clusters need compute capability 9.0; no plan for older GPUs has more than one block a row.
#if __CUDA_ARCH__ >= 900
  __device__ static int rank_in_cluster() {
    return static_cast<int>(cooperative_groups::this_cluster().block_rank());
  }
  __device__ static unsigned cluster_index() {
    unsigned index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
  }
  __device__ static void arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
  __device__ static void wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
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
  /// In whole words of st.async.
  template <typename Partial>
  struct alignas(sizeof(uint64_t)) Sent {
    Partial partial;
  };

  /// Gives this block's partial to all blocks, and returns those of all. A barrier of the cluster
  /// takes longer: it also waits for what else the threads have loaded and stored.
  template <typename Partial>
  __device__ const Sent<Partial>* send(const Partial& partial, int turn) {
    Sent<Partial>* const block_partials = exchange<Sent<Partial>, 16>(turn);
#if __CUDA_ARCH__ >= 900
    wait_for_start();
    Mbarrier& arrived = arrivals()[turn];
    const int block = static_cast<int>(threadIdx.x);
    if (block < blocks_) {
      if (block == 0) {
        arrived.arrive_expect_bytes(blocks_ * static_cast<int>(sizeof(Sent<Partial>)));
      }
      arrived.send(block, block_partials + block_, Sent<Partial>{partial});
    }
    arrived.wait(turn_ >> 1 & 1);
#endif
    return block_partials;
  }
  __device__ static Mbarrier* arrivals() {
    __shared__ Mbarrier barriers[2];
    return barriers;
  }

  /// Shared memory for partials, whatever function merges them. Double-buffered: a warp that is one
  /// row further writes where no other still reads. An array each for warps and blocks: with both
  /// in one struct, block_kernel<4> of float32 takes 51 registers, not 40.
  template <typename Partial, int kCount>
  __device__ static Partial* exchange(int turn) {
    __shared__ Partial memory[2 * kCount];
    return memory + turn * kCount;
  }

  int blocks_;
  int block_ = 0;
  int turn_ = 0;
  bool started_ = false;
  Warp lanes_;
};

}  // namespace warpfuse::cuda
