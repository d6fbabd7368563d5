#include <algorithm>

#include "dropout_softmax/dropout_softmax.h"
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

}  // namespace warpfuse::cuda

namespace warpfuse {
namespace {

using namespace cuda;

LaunchShape elements_shape(int64_t elements) {
  constexpr int kThreads = 256;
  constexpr int64_t kBlocks = 1 << 20;  // a block takes more elements where there are more
  const int64_t block_elements = int64_t{kThreads} * kDropoutBlock;
  return {Tier::elements, 0, std::min((elements + block_elements - 1) / block_elements, kBlocks),
          kThreads};
}

}  // namespace

cudaError_t launch_cuda(const DropElementsArguments& arguments, cudaStream_t stream) {
  const auto& a = arguments;
  const bool aligned = reinterpret_cast<uintptr_t>(a.input) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(a.output) % 16 == 0;
  return dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch_kernel(drop_elements_kernel<T>, elements_shape(a.elements), stream,
                         static_cast<const T*>(a.input), static_cast<T*>(a.output), a.elements,
                         aligned, a.scaled, DropoutMask<Compute<T>>(a.dropout), a.rng, a.rng_used);
  });
}

cudaError_t launch_cuda(const DropoutMaskArguments& arguments, Workspace& /*workspace*/,
                        cudaStream_t stream) {
  return launch_kernel(mark_elements_kernel, elements_shape(arguments.elements), stream,
                       arguments.mask, arguments.elements, arguments.dropout, arguments.rng);
}

}  // namespace warpfuse
