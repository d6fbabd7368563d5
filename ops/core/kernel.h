#pragma once

#include "common/workspace.h"

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
