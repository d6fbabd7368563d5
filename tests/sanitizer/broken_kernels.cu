// Kernels that reverse an array: one that is sound, and one for each tool of compute-sanitizer,
// which must pass the first and find fault with its own: the check on the check of
// scripts/sanitize_gpu.sh.
//
//   warpfuse_broken_kernels FAULT
//     sound          none
//     out-of-bounds  writes behind the array
//     race           does not wait for the other warps of the block
//     uninitialized  reads an array that nobody has written
//     divergence     lets half of a warp by where the block waits
//
// exit code: 0 the kernel ran, 1 CUDA reported an error, 2 another argument

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace warpfuse {  // whose kernels the script has watched
namespace {

// The array has no round size: what cudaMalloc adds to it is no excuse.
constexpr int kThreads = 250;

enum class Fault { none, out_of_bounds, race, uninitialized, divergence };

__global__ void reverse(float* values, Fault fault) {
  __shared__ float staged[kThreads];
  const int i = static_cast<int>(threadIdx.x);
  staged[i] = values[i];
  if (fault != Fault::race && (fault != Fault::divergence || i < kThreads / 2)) {
    __syncthreads();
  }
  values[fault == Fault::out_of_bounds ? i + 1 : i] = staged[kThreads - 1 - i];
}

}  // namespace
}  // namespace warpfuse

namespace {

using warpfuse::Fault;
using warpfuse::kThreads;

bool ran(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  }
  return error == cudaSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  // In the order of Fault.
  constexpr const char* kNames[] = {"sound", "out-of-bounds", "race", "uninitialized",
                                    "divergence"};
  const auto* const name = std::find_if(std::begin(kNames), std::end(kNames), [&](const char* n) {
    return argc == 2 && std::strcmp(argv[1], n) == 0;
  });
  if (name == std::end(kNames)) {
    std::fprintf(stderr,
                 "usage: warpfuse_broken_kernels "
                 "sound|out-of-bounds|race|uninitialized|divergence\n");
    return 2;
  }
  const auto fault = static_cast<Fault>(name - std::begin(kNames));
  float* values = nullptr;
  if (!ran(cudaMalloc(&values, kThreads * sizeof(float))) ||
      (fault != Fault::uninitialized && !ran(cudaMemset(values, 0, kThreads * sizeof(float))))) {
    return 1;
  }
  warpfuse::reverse<<<1, kThreads>>>(values, fault);
  const bool launched = ran(cudaGetLastError());
  const bool finished = ran(cudaDeviceSynchronize());
  return launched && finished && ran(cudaFree(values)) ? 0 : 1;
}
