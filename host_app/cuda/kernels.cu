#include "cuda/kernels.h"

namespace warpfuse::host {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // 16-byte loads that a thread has in flight

__global__ void empty_kernel() {}

// Many short blocks: a block moves kThreads * kPacks packs.
__global__ void __launch_bounds__(kThreads)
    copy_kernel(uint4* __restrict__ to, const uint4* __restrict__ from, int64_t packs) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kPacks + threadIdx.x;
  uint4 held[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * kThreads < packs) {
      held[i] = from[first + i * kThreads];
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * kThreads < packs) {
      to[first + i * kThreads] = held[i];
    }
  }
}

// One block, so that its barrier stands between the tokens and their publication.
__device__ void publish(const StepState& state, int64_t step) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    *state.count = step + 1;
    *static_cast<volatile int64_t*>(state.published) = step + 1;
  }
}

__global__ void __launch_bounds__(kThreads) advance_kernel(StepState state, const int64_t* tokens) {
  const int64_t step = *state.count;
  for (int64_t row = threadIdx.x; row < state.rows; row += blockDim.x) {
    advance_row(state, step, row, tokens[row]);
  }
  publish(state, step);
}

__global__ void __launch_bounds__(kThreads) begin_kernel(StepState state, FirstTokens first) {
  const int64_t step = *state.count;
  for (int64_t i = threadIdx.x; i < first.count; i += blockDim.x) {
    begin_row(state, step, first, i);
  }
  if (first.published) {
    publish(state, step);
  }
}

}  // namespace

cudaError_t launch_empty_kernel(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_advance_kernel(const StepState& state, const int64_t* tokens,
                                  cudaStream_t stream) {
  advance_kernel<<<1, kThreads, 0, stream>>>(state, tokens);
  return cudaGetLastError();
}

cudaError_t launch_begin_kernel(const StepState& state, const FirstTokens& first,
                                cudaStream_t stream) {
  begin_kernel<<<1, kThreads, 0, stream>>>(state, first);
  return cudaGetLastError();
}

cudaError_t launch_copy_kernel(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  const int64_t packs = bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t blocks = (packs + kThreads * kPacks - 1) / (kThreads * kPacks);
  copy_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), packs);
  return cudaGetLastError();
}

}  // namespace warpfuse::host
