#pragma once

#include <cuda.h>

#include <cstdint>

#include "rowwise/cuda/memory.cuh"

namespace warpfuse::cuda {

// The operands of a product on their way to shared memory: the copy engine fills the stages of a
// ring in turn, and the warps that multiply hand them back (PTX ISA: "mbarrier",
// "cp.async.bulk.tensor").

/// A block's tile of logits has so many rows and columns.
inline constexpr int kTileRows = 128, kTileColumns = 128;
/// So much of each row of an operand is in a stage, its 16-byte chunk c in place c ^ row % 8: the
/// layout that the copy engine and the tensor cores call the swizzle of 128 bytes. It counts from
/// addresses divisible by kStageAlignment.
inline constexpr int kStageRowBytes = 128;
inline constexpr int kStageAlignment = 1024;
inline constexpr int kInputBytes = kTileRows * kStageRowBytes;
inline constexpr int kWeightBytes = kTileColumns * kStageRowBytes;
/// A stage of the input waits for all blocks of a cluster to hand it back, one of the weight does
/// not.
inline constexpr int kInputStages = 7, kWeightStages = 6;
inline constexpr int kStagesBytes =
    kInputStages * kInputBytes + kWeightStages * kWeightBytes + kStageAlignment;

/// Counts arrivals and copied bytes. Its phases alternate in parity.
class Barrier {
 public:
  __device__ void initialise(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }
  /// An arrival, and the phase ends when so many bytes have come too.
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// An arrival at the barrier in this place of another block of the cluster.
  __device__ void arrive_at(unsigned block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(address()),
        "r"(block)
        : "memory");
  }
  /// Eight bytes to this place of another block's shared memory, which its barrier in the same
  /// place as this one counts.
  __device__ void send(unsigned block, const void* place, uint64_t bits) const {
    asm volatile(
        "{\n"
        ".reg .b32 remote, barrier;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [remote], %3, [barrier];\n"
        "}" ::"r"(shared_address(place)),
        "r"(address()), "r"(block), "l"(bits)
        : "memory");
  }
  __device__ void wait(unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  __device__ unsigned address() const { return shared_address(&word_); }

 private:
  uint64_t word_;
};

/// A ring's barriers, in shared memory.
template <int kCount, int kBytes>
struct Ring {
  static constexpr int kStages = kCount, kStageBytes = kBytes;
  Barrier full[kStages], empty[kStages];

  /// By one thread. A stage is empty when so many warps have handed it back.
  __device__ void prepare(int warps) {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].initialise(1);
      empty[stage].initialise(warps);
    }
  }
};
using InputRing = Ring<kInputStages, kInputBytes>;
using WeightRing = Ring<kWeightStages, kWeightBytes>;

/// A thread's way around a ring whose first stage is at `memory`.
template <typename Ring>
class RingCursor {
 public:
  __device__ RingCursor(Ring& ring, unsigned memory) : ring_(ring), memory_(memory) {}

  __device__ unsigned address() const {
    return memory_ + static_cast<unsigned>(stage_) * Ring::kStageBytes;
  }
  __device__ Barrier& full() { return ring_.full[stage_]; }
  __device__ Barrier& empty() { return ring_.empty[stage_]; }
  __device__ void wait_full() { full().wait(parity_); }
  /// Does not wait in the first round.
  __device__ void wait_empty() { empty().wait(parity_ ^ 1); }
  __device__ void advance() {
    if (++stage_ == Ring::kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  Ring& ring_;
  unsigned memory_;
  int stage_ = 0;
  unsigned parity_ = 0;  // of the round
};

/// Where rings begin in dynamic shared memory of kStagesBytes.
__device__ __forceinline__ unsigned input_memory(const void* memory) {
  return (shared_address(memory) + kStageAlignment - 1) / kStageAlignment * kStageAlignment;
}
__device__ __forceinline__ unsigned weight_memory(const void* memory) {
  return input_memory(memory) + kInputStages * kInputBytes;
}

/// By one thread: all steps of the block's columns of the weight, whose first is given.
__device__ __forceinline__ void fetch_weight(RingCursor<WeightRing> at, const CUtensorMap& map,
                                             int column, int steps, int step_elements) {
  const uint64_t once = evict_first();
  for (int step = 0; step < steps; ++step, at.advance()) {
    at.wait_empty();
    at.full().expect(kWeightBytes);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(at.address()),
        "l"(&map), "r"(step * step_elements), "r"(column), "r"(at.full().address()), "l"(once)
        : "memory");
  }
}

/// The rows of a tile that one block of a cluster fetches for all.
__host__ __device__ constexpr int rows_of_block(int rows, int blocks) {
  constexpr int kGroup = 8;  // of the swizzle
  return ((rows + blocks - 1) / blocks + kGroup - 1) / kGroup * kGroup;
}

/// By one thread: all steps of the block's share of the input's rows, to all kBlocks blocks.
template <int kBlocks>
__device__ __forceinline__ void fetch_input(RingCursor<InputRing> at, const CUtensorMap& map,
                                            int rows, int steps, int step_elements) {
  const int share = rows_of_block(rows, kBlocks), shares = (rows + share - 1) / share;
  const int row = static_cast<int>(blockIdx.x % kBlocks) * share;
  const uint64_t again = evict_last();
  for (int step = 0; step < steps; ++step, at.advance()) {
    at.wait_empty();
    at.full().expect(shares * share * kStageRowBytes);
    if (row < rows) {
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
          ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(
              at.address() + row * kStageRowBytes),
          "l"(&map), "r"(step * step_elements), "r"(row), "r"(at.full().address()),
          "h"(static_cast<uint16_t>((1 << kBlocks) - 1)), "l"(again)
          : "memory");
    }
  }
}

}  // namespace warpfuse::cuda
