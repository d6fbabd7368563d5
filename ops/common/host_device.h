#pragma once

// Marks a function that kernels of the CPU and of CUDA share.
#ifdef __CUDACC__
#define WARPFUSE_HOST_DEVICE __host__ __device__
#else
#define WARPFUSE_HOST_DEVICE
#endif
