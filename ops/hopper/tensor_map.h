#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

#include "common/dtype.h"

namespace warpfuse::cuda {

/// One dimension of a tensor in global memory, and of the box of it that one TMA copy moves.
struct TensorMapDimension {
  int64_t size;          // elements
  int box;               // elements, at most 256
  int64_t stride_bytes;  // a multiple of 16; unused in the innermost dimension, which is contiguous
};

/// float32 as it is; the TMA unit can also round it to TF32.
constexpr CUtensorMapDataType tensor_map_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::float32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

/// Describes a tensor to the TMA unit (hopper/tma.cuh): `data` is aligned to 16 bytes, `dimensions`
/// are 1 to 5, the innermost first. Elements of a box outside the tensor are read as zeros.
/// Host code; knows no libtorch. Returns the driver's error.
cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* data,
                              std::initializer_list<TensorMapDimension> dimensions,
                              CUtensorMapSwizzle swizzle);

/// An operand of wgmma (hopper/wgmma.cuh) in shared memory: bytes of each row, whose 16-byte chunk
/// c lies at place c ^ row % 8, relative to addresses divisible by the alignment.
inline constexpr int kOperandRowBytes = 128, kOperandAlignment = 1024;

/// The map of a matrix [rows, columns] as such an operand, in boxes of box_rows x kOperandRowBytes.
/// Rows are row_stride elements apart.
cudaError_t encode_operand(CUtensorMap& map, CUtensorMapDataType type, const void* matrix,
                           int64_t rows, int64_t columns, int64_t row_stride, int box_rows);

/// Whether the library has code with wgmma (hopper/wgmma.cuh) for the current device. Only code for
/// 9.0a has it, which runs on no other compute capability than 9.0.
bool has_wgmma_code();

}  // namespace warpfuse::cuda
