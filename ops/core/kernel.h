#pragma once

#include <cstddef>

// The types of kernels' entry points, free of libtorch. A kernel takes an argument struct of its
// own:
//
//   void launch_cpu(const XArguments& arguments);
//   cudaError_t launch_cuda(const XArguments& arguments, Workspace& workspace, cudaStream_t
//   stream);
//
// Tensors are contiguous and not empty. launch_cuda() launches on `stream` of the current device,
// synchronises nothing and returns the launch's error.

#ifdef WARPFUSE_WITH_CUDA
#include <cuda_runtime_api.h>
#else
struct CUstream_st;
using cudaStream_t = CUstream_st*;  // NOLINT(readability-identifier-naming)
using cudaError_t = int;
#endif

namespace warpfuse {

/// Gives a launch device memory for partial results. The memory stays valid for the kernels that
/// were queued on the stream before the workspace is destroyed.
class Workspace {
 public:
  virtual ~Workspace() = default;
  /// Device memory, aligned to 256 bytes; each call gives other memory.
  virtual void* allocate(size_t bytes) = 0;
};

}  // namespace warpfuse
