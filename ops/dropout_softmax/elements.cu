#include <algorithm>

#include "dropout_softmax/elements.h"
#include "rowwise/cuda/dispatch.cuh"
#include "rowwise/cuda/dropout.cuh"
#include "rowwise/cuda/kernel_launch.h"

namespace warpfuse::cuda {

// Calls visit(block, first, count) for the Philox blocks of this thread.
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

// output = input * keep * scale; they may be the same. aligned: 16 bytes may be moved at once.
// scaled: the input has been multiplied by scale before it was rounded.
template <typename T>
__global__ void __launch_bounds__(256)
    drop_elements_kernel(const T* input, T* output, int64_t elements, bool aligned, bool scaled,
                         DropoutMask<Compute<T>> drop, RngSource source, int64_t* used) {
  using C = Compute<T>;
  wait_for_previous_kernel();
  const Rng rng = rng_of_kernel(source, used);
  const C scale = scaled ? C(1) : drop.scale;
  for_dropout_blocks(elements, [&](uint64_t block, int64_t first, int count) {
    const unsigned kept = kept_of_block(drop.rule, rng, block);
    const auto dropped = [&](C value, int i) {
      const bool keeps = (kept >> i & 1) != 0;
      // A scaled probability may have overflowed T, but was finite: dropped, it is 0.
      return !keeps && scaled && isinf(value) ? C(0) : value * (keeps ? scale : C(0));
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

__global__ void __launch_bounds__(256)
    mark_elements_kernel(bool* mask, int64_t elements, Dropout dropout, RngSource source) {
  wait_for_previous_kernel();
  const Rng rng = rng_of_kernel(source, nullptr);
  for_dropout_blocks(elements, [&](uint64_t block, int64_t first, int count) {
    const unsigned kept = kept_of_block(dropout, rng, block);
    for (int i = 0; i < count; ++i) {
      mask[first + i] = (kept >> i & 1) != 0;
    }
  });
}

namespace {

LaunchShape elements_shape(int64_t elements) {
  constexpr int kThreads = 256;
  constexpr int64_t kBlocks = 1 << 20;  // a block takes more elements where there are more
  const int64_t of_block = int64_t{kThreads} * kDropoutBlock;
  return {Tier::elements, 0, std::min((elements + of_block - 1) / of_block, kBlocks), kThreads};
}

}  // namespace

cudaError_t drop_elements(DType dtype, const void* input, void* output, int64_t elements,
                          const Dropout& dropout, Scaled scaled, const RngSource& source,
                          int64_t* used, cudaStream_t stream) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(input) % 16 == 0 && reinterpret_cast<uintptr_t>(output) % 16 == 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch_kernel(drop_elements_kernel<T>, elements_shape(elements), stream,
                         static_cast<const T*>(input), static_cast<T*>(output), elements, aligned,
                         scaled == Scaled::before, DropoutMask<Compute<T>>(dropout), source, used);
  });
}

cudaError_t mark_elements(bool* mask, int64_t elements, const Dropout& dropout,
                          const RngSource& source, cudaStream_t stream) {
  return launch_kernel(mark_elements_kernel, elements_shape(elements), stream, mask, elements,
                       dropout, source);
}

}  // namespace warpfuse::cuda
