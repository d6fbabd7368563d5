#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>

#include "common/philox.h"

namespace warpfuse {

/// The next offset of the device's default generator. While a CUDA graph is captured it is a place
/// in memory, which each replay finds advanced.
inline RngSource draw_rng_on_cuda(c10::Device device) {
  constexpr uint64_t kOffsets = 4;           // a call's; the generator counts in fours
  const c10::cuda::CUDAGuard guard(device);  // whose current stream may be capturing
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  const std::scoped_lock lock(generator.mutex());
  const at::PhiloxCudaState state =
      at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(kOffsets);
  if (state.captured_) {
    return {.seed_at = state.seed_.ptr,
            .offset_at = state.offset_.ptr,
            .offset = state.offset_intragraph_,
            .settled = true};  // written before the graph begins
  }
  return {.seed = state.seed_.val, .offset = state.offset_.val, .settled = true};
}

}  // namespace warpfuse
