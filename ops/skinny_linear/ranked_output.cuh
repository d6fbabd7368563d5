#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/logit_key.h"

namespace warpfuse::cuda {

template <typename T>
using FormatOf = std::conditional_t<
    std::is_same_v<T, float>, Float32Format,
    std::conditional_t<std::is_same_v<T, __half>, Float16Format, BFloat16Format>>;

/// An output and its index as one number, in the order of greedy sampling: NaN, then larger values,
/// then lower indices.
template <typename T>
__device__ __forceinline__ unsigned long long ranked(T value, int64_t index) {
  using Format = FormatOf<T>;
  const auto key = static_cast<uint32_t>(Format::key(same_bits<typename Format::Bits>(value)));
  return static_cast<unsigned long long>(key ^ 0x80000000u) << 32 |
         static_cast<uint32_t>(~static_cast<uint32_t>(index));
}

template <typename T>
__device__ __forceinline__ int64_t token_of(unsigned long long best) {
  using Format = FormatOf<T>;
  const auto key = static_cast<int32_t>(static_cast<uint32_t>(best >> 32) ^ 0x80000000u);
  const bool is_none = key == Format::kNaN || key <= -Format::kInfinity;
  return is_none ? -1 : static_cast<int64_t>(~static_cast<uint32_t>(best));
}

}  // namespace warpfuse::cuda
