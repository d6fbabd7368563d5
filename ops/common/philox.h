#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace warpfuse {

/// 128 random bits.
struct PhiloxBlock {
  uint32_t words[4];
};

/// The 64-bit product, one instruction on the GPU.
WARPFUSE_HOST_DEVICE inline uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<uint64_t>(a) * b;
#endif
}

/// Philox4x32-7: 128 random bits from a key and a counter of 128 bits. J. K. Salmon,
/// M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
/// where seven rounds are the fewest that pass all tests of BigCrush.
WARPFUSE_HOST_DEVICE inline PhiloxBlock philox(uint64_t key, uint64_t counter_low,
                                               uint64_t counter_high) {
  constexpr int kRounds = 7;
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  auto c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  auto c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = wide_product(kMultiplier0, c0);
    const uint64_t product1 = wide_product(kMultiplier1, c2);
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

/// Seed and offset of one call: its random numbers are philox(seed, ..., offset).
struct Rng {
  uint64_t seed;
  uint64_t offset;

  /// As the tensor `rng` of an operator, [2].
  void store(int64_t* rng) const {
    rng[0] = static_cast<int64_t>(seed);
    rng[1] = static_cast<int64_t>(offset);
  }
};

/// Where a kernel finds its Rng: as numbers, or in device memory that a CUDA graph's replay or an
/// earlier call has written.
struct RngSource {
  const int64_t* seed_at = nullptr;    // null: `seed` and `offset` are the numbers
  const int64_t* offset_at = nullptr;  // `offset` is added to its value
  uint64_t seed = 0;
  uint64_t offset = 0;
  bool settled = false;  // no kernel that may still run writes to that memory

  WARPFUSE_HOST_DEVICE Rng get() const {
    return seed_at == nullptr
               ? Rng{seed, offset}
               : Rng{static_cast<uint64_t>(*seed_at), static_cast<uint64_t>(*offset_at) + offset};
  }
};

}  // namespace warpfuse
