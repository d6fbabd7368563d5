#pragma once

#include "rowwise/cuda/types.cuh"

namespace warpfuse::cuda {

/// 1, 2, 4 .. 32 neighbouring lanes of a warp that share a row.
class LaneGroup {
 public:
  __device__ explicit LaneGroup(int lanes) : lanes_(lanes) {
    const unsigned here = threadIdx.x % 32 / lanes * lanes;
    mask_ = (lanes == 32 ? 0xffffffffu : (1u << lanes) - 1) << here;
  }

  __device__ int size() const { return lanes_; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % lanes_; }

  template <typename C>
  __device__ C max(C value) const {
    for (int offset = lanes_ / 2; offset > 0; offset /= 2) {
      value = larger(value, __shfl_xor_sync(mask_, value, offset));
    }
    return value;
  }

  template <typename C>
  __device__ C sum(C value) const {
    for (int offset = lanes_ / 2; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(mask_, value, offset);
    }
    return value;
  }

  __device__ bool any(bool value) const { return __any_sync(mask_, value) != 0; }

 private:
  int lanes_;
  unsigned mask_;
};

/// All threads of a block, a multiple of 32, share a row.
class BlockGroup {
 public:
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }

  template <typename C>
  __device__ C max(C value) const {
    return reduce(value, lowest<C>(), [](C a, C b) { return larger(a, b); });
  }

  template <typename C>
  __device__ C sum(C value) const {
    return reduce(value, C(0), [](C a, C b) { return a + b; });
  }

  __device__ bool any(bool value) const { return __syncthreads_or(value) != 0; }

 private:
  template <typename C, typename Combine>
  __device__ C reduce(C value, C identity, const Combine& combine) const {
    __shared__ C of_warp[32];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    if (lane == 0) {
      of_warp[warp] = value;
    }
    __syncthreads();
    value = lane < size() / 32 ? of_warp[lane] : identity;
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    __syncthreads();  // of_warp is free for the next reduction
    return value;
  }
};

}  // namespace warpfuse::cuda
