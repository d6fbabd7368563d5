#pragma once

#include <algorithm>

#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse::cuda {

// Dropout by itself, a Philox block a thread: for the mask, and beside the kernels of a dimension
// that is not the last.

__device__ inline Rng rng_of_kernel(const RngSource& source, int64_t* used) {
  const Rng rng = source.get();
  if (used != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    used[0] = static_cast<int64_t>(rng.seed);
    used[1] = static_cast<int64_t>(rng.offset);
  }
  return rng;
}

/// Calls visit(block, first, count) for the Philox blocks of this thread.
template <typename Visit>
__device__ __forceinline__ void for_dropout_blocks(int64_t elements, const Visit& visit) {
  const int64_t blocks = (elements + kDropoutBlock - 1) / kDropoutBlock;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; block < blocks;
       block += threads) {
    const int64_t first = block * kDropoutBlock;
    visit(static_cast<uint64_t>(block), first,
          static_cast<int>(min(elements - first, static_cast<int64_t>(kDropoutBlock))));
  }
}

/// output = input * keep * scale; they may be the same. kScaled: the input is probabilities that
/// were scaled before they were rounded, and may have overflowed T. aligned: 16 bytes may be moved
/// at once.
template <typename T, bool kScaled>
__global__ void __launch_bounds__(256)
    drop_elements_kernel(const T* input, T* output, int64_t elements, bool aligned,
                         Drop<Compute<T>> drop, RngSource source, int64_t* used) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const Rng rng = rng_of_kernel(source, used);
  for_dropout_blocks(elements, [&](uint64_t block, int64_t first, int count) {
    const unsigned kept = kept_of_block(drop.dropout, rng, block);
    const auto dropped = [&](C value, int i) {
      const bool keeps = (kept >> i & 1) != 0;
      if constexpr (kScaled) {
        return keeps || isnan(value) ? value : C(0);
      }
      return value * (keeps ? drop.scale : C(0));
    };
    if (!aligned || count < kDropoutBlock) {
      for (int i = 0; i < count; ++i) {
        output[first + i] = from_compute<T>(dropped(to_compute(input[first + i]), i));
      }
      return;
    }
#pragma unroll
    for (int pack = 0; pack < kDropoutBlock; pack += kPack<T>) {
      C values[kPack<T>];
      unpack<T>(load_16_bytes(input + first + pack), values);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        values[i] = dropped(values[i], pack + i);
      }
      store_16_bytes(output + first + pack, pack_bits<T>(values));
    }
  });
}

template <typename Bool>
__global__ void __launch_bounds__(256)
    mark_elements_kernel(Bool* mask, int64_t elements, Dropout dropout, RngSource source) {
  wait_for_previous_kernel();
  const Rng rng = rng_of_kernel(source, nullptr);
  for_dropout_blocks(elements, [&](uint64_t block, int64_t first, int count) {
    const unsigned kept = kept_of_block(dropout, rng, block);
    for (int i = 0; i < count; ++i) {
      mask[first + i] = (kept >> i & 1) != 0;
    }
  });
}

inline LaunchShape elements_shape(int64_t elements) {
  constexpr int kThreads = 256;
  constexpr int64_t kBlocks = 1 << 20;  // a block takes more elements where there are more
  const int64_t of_block = int64_t{kThreads} * kDropoutBlock;
  return {Tier::elements, 0, std::min((elements + of_block - 1) / of_block, kBlocks), kThreads};
}

template <bool kScaled, typename T>
cudaError_t drop_elements(const T* input, T* output, int64_t elements, const Dropout& dropout,
                          const RngSource& source, int64_t* used, cudaStream_t stream) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(input) % 16 == 0 && reinterpret_cast<uintptr_t>(output) % 16 == 0;
  return launch_kernel(drop_elements_kernel<T, kScaled>, elements_shape(elements), stream, input,
                       output, elements, aligned, Drop<Compute<T>>(dropout), source, used);
}

}  // namespace warpfuse::cuda
