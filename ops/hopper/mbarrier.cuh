#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// Barriers in shared memory that asynchronous copies arrive at (PTX ISA: "mbarrier"). Compute
// capability 9.0; 8.0 has those of one block without copies.

/// An mbarrier object in shared memory. A phase completes when the expected arrivals and the
/// expected bytes have come; the phases' parities are 0, 1, 0, 1 ..
class Mbarrier {
 public:
  /// By one thread, followed by fence_mbarrier_init() and a barrier of the block or the cluster.
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }

  /// Makes the phase, which has not completed, wait for `bytes` more of asynchronous copies.
  __device__ void expect_bytes(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  /// Arrives, and makes the phase wait for `bytes` more of asynchronous copies.
  __device__ void arrive_expect_bytes(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  /// Arrives at the same barrier of block `block` of the cluster.
  __device__ void arrive_remote(unsigned block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(address()),
        "r"(block)
        : "memory");
  }

  /// Stores a value of whole words to `destination` in the shared memory of block `block` of the
  /// cluster, which that block's copy of this barrier counts in bytes. `destination` is given by
  /// its address in this block.
  template <typename Value>
  __device__ void send(unsigned block, const Value* destination, const Value& value) const {
    using Word = std::conditional_t<sizeof(Value) % sizeof(uint64_t) == 0, uint64_t, uint32_t>;
    constexpr int kWords = sizeof(Value) / sizeof(Word);
    Word words[kWords];
    memcpy(words, &value, sizeof(value));
    const unsigned to = remote_address(shared_address(destination), block),
                   barrier = remote_address(address(), block);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const unsigned at = to + i * static_cast<unsigned>(sizeof(Word));
      if constexpr (sizeof(Word) == sizeof(uint64_t)) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at),
            "l"(words[i]), "r"(barrier)
            : "memory");
      } else {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at),
            "r"(words[i]), "r"(barrier)
            : "memory");
      }
    }
  }

  /// Returns once the phase of this parity has completed. The phase before the first one counts as
  /// completed: wait(1) on a new barrier returns at once.
  __device__ void wait(unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
#else
        "mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n"
#endif
        "@!done bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }

  __device__ unsigned address() const { return shared_address(&word_); }

 private:
  __device__ static unsigned remote_address(unsigned address, unsigned block) {
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
    return remote;
  }

  uint64_t word_;
};

/// Makes this thread's Mbarrier::init() visible to the cluster and to asynchronous copies.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Orders this thread's accesses to shared memory before those of copies by the TMA unit and of
/// products by wgmma that follow.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Arrives at the barrier of all threads of the cluster, and orders no memory accesses.
__device__ __forceinline__ void arrive_at_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// That barrier as a whole.
__device__ __forceinline__ void sync_cluster_relaxed() {
  arrive_at_cluster_relaxed();
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

}  // namespace warpfuse::cuda
