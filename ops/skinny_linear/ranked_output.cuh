#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/launch_chain.cuh"
#include "common/logit_key.h"
#include "rowwise/cuda/pdl.cuh"
#include "skinny_linear/skinny_linear.h"

namespace warpfuse::cuda {

template <typename T>
using FormatOf = std::conditional_t<
    std::is_same_v<T, float>, Float32Format,
    std::conditional_t<std::is_same_v<T, __half>, Float16Format, BFloat16Format>>;

/// An output as an integer, in the order of greedy sampling: NaN is the largest.
template <typename T>
__device__ __forceinline__ int32_t key_of(T value) {
  using Format = FormatOf<T>;
  return Format::key(same_bits<typename Format::Bits>(value));
}

/// An output's key and its index as one number: lower indices win where keys are equal.
__device__ __forceinline__ unsigned long long ranked(int32_t key, int64_t index) {
  return static_cast<unsigned long long>(static_cast<uint32_t>(key) ^ 0x80000000u) << 32 |
         static_cast<uint32_t>(~static_cast<uint32_t>(index));
}

template <typename T>
__device__ __forceinline__ int64_t token_of(unsigned long long best) {
  using Format = FormatOf<T>;
  const auto key = static_cast<int32_t>(static_cast<uint32_t>(best >> 32) ^ 0x80000000u);
  const bool is_none = key == Format::kNaN || key <= -Format::kInfinity;
  return is_none ? -1 : static_cast<int64_t>(~static_cast<uint32_t>(best));
}

inline constexpr int kBestTokenWarps = 8;

/// Reduces the blocks' partials [rows, count]; a block for each row.
template <typename T>
__global__ void __launch_bounds__(kBestTokenWarps * 32)
    best_token_kernel(unsigned long long* partials, int count, int64_t* tokens,
                      bool continues_chain) {
  __shared__ unsigned long long best_of_warp[kBestTokenWarps];
  if (continues_chain) {
    launch_dependents();
  }
  wait_for_previous_kernel();
  unsigned long long best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBestTokenWarps * 32) {
    best = max(best, __ldcg(partials + int64_t{blockIdx.x} * count + i));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    best = max(best, __shfl_xor_sync(~0u, best, offset));
  }
  if (threadIdx.x % 32 == 0) {
    best_of_warp[threadIdx.x / 32] = best;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const unsigned long long each : best_of_warp) {
      best = max(best, each);
    }
    tokens[blockIdx.x] = token_of<T>(best);
  }
}

template <typename T>
cudaError_t launch_best_token(const SkinnyLinearArguments& a, unsigned long long* partials,
                              int64_t count, cudaStream_t stream) {
  const LaunchShape shape{Tier::tile, 0, a.rows, kBestTokenWarps * 32};
  return launch_in_chain<best_token_kernel<T>>(shape, stream, partials, static_cast<int>(count),
                                               a.tokens);
}

}  // namespace warpfuse::cuda
