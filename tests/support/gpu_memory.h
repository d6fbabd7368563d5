#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/StringUtil.h>
#include <cuda_runtime_api.h>

#include "skip.h"

/// Skips the test case where the GPU has too little memory for more than 2^31 elements. Returns
/// whether it did.
inline bool skip_below_32_gib() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  if (free < (size_t{32} << 30)) {
    skip_test(c10::str("needs 32 GiB of free GPU memory, found ", free >> 30));
    return true;
  }
  return false;
}
