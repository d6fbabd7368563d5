#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

namespace warpfuse::cuda {

/// One dimension of a tensor in global memory, and of the box of it that one TMA copy moves.
struct TensorMapDimension {
  int64_t size;          // elements
  int box;               // elements, at most 256
  int64_t stride_bytes;  // a multiple of 16; unused in the innermost dimension, which is contiguous
};

/// Describes a tensor to the TMA unit (hopper/tma.cuh): `data` is aligned to 16 bytes, `dimensions`
/// are 1 to 5, the innermost first. Elements of a box outside the tensor are read as zeros.
/// Host code; knows no libtorch. Returns the driver's error.
cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* data,
                              std::initializer_list<TensorMapDimension> dimensions,
                              CUtensorMapSwizzle swizzle);

/// Whether the library has code with wgmma (hopper/wgmma.cuh) for the current device. Only code for
/// 9.0a has it, which runs on no other compute capability than 9.0.
bool has_wgmma_code();

}  // namespace warpfuse::cuda
