#pragma once

#include <utility>

namespace warpfuse::cuda {

template <typename What, int... kIndices>
__device__ __forceinline__ void unrolled(std::integer_sequence<int, kIndices...>, What&& what) {
  (what(kIndices), ...);
}

/// Calls what(0) .. what(kCount - 1), and leaves no loop to the compiler: it unrolls loops behind
/// the pass that assigns arrays to registers, so that an array which two copies of a loop index
/// may end up in local memory.
template <int kCount, typename What>
__device__ __forceinline__ void unrolled(What&& what) {
  unrolled(std::make_integer_sequence<int, kCount>(), what);
}

}  // namespace warpfuse::cuda
