// Three kernels that reverse an array: one that is sound, one that writes behind its array, and one
// that does not wait for the other warps of its block. compute-sanitizer must pass the first and
// find fault with the others: the check on the check of scripts/sanitize_gpu.sh.
//
//   warpfuse_broken_kernels sound|out-of-bounds|race
//
// exit code: 0 the kernel ran, 1 CUDA reported an error, 2 another argument

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace warpfuse {  // whose kernels the script has watched
namespace {

constexpr int kThreads = 256;

enum class Fault { none, out_of_bounds, race };

__global__ void reverse(float* values, Fault fault) {
  __shared__ float staged[kThreads];
  const int i = static_cast<int>(threadIdx.x);
  staged[i] = values[i];
  if (fault != Fault::race) {
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
  const char* name = argc == 2 ? argv[1] : "";
  Fault fault = Fault::none;
  if (std::strcmp(name, "out-of-bounds") == 0) {
    fault = Fault::out_of_bounds;
  } else if (std::strcmp(name, "race") == 0) {
    fault = Fault::race;
  } else if (std::strcmp(name, "sound") != 0) {
    std::fprintf(stderr, "usage: warpfuse_broken_kernels sound|out-of-bounds|race\n");
    return 2;
  }
  float* values = nullptr;
  if (!ran(cudaMalloc(&values, kThreads * sizeof(float))) ||
      !ran(cudaMemset(values, 0, kThreads * sizeof(float)))) {
    return 1;
  }
  warpfuse::reverse<<<1, kThreads>>>(values, fault);
  const bool launched = ran(cudaGetLastError());
  const bool finished = ran(cudaDeviceSynchronize());
  return launched && finished && ran(cudaFree(values)) ? 0 : 1;
}
