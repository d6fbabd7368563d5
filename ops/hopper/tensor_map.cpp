#include "hopper/tensor_map.h"

#include "rowwise/cuda/device_limits.h"

namespace warpfuse::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Asks the runtime for the driver's function: the library does not link with the driver's.
Encode encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kMinVersion = 12000;  // CUDA 12.0
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kMinVersion,
                                   cudaEnableDefault, &result);
  return reinterpret_cast<Encode>(function);
}

}  // namespace

cudaError_t encode_tensor_map(CUtensorMap& map, CUtensorMapDataType type, const void* data,
                              std::initializer_list<TensorMapDimension> dimensions,
                              CUtensorMapSwizzle swizzle) {
  static const Encode encode = encode_function();
  if (encode == nullptr) {
    return cudaErrorSymbolNotFound;
  }
  constexpr int kMaxRank = 5;
  cuuint64_t sizes[kMaxRank], stride_bytes[kMaxRank];
  cuuint32_t boxes[kMaxRank], steps[kMaxRank];
  cuuint32_t rank = 0;
  for (const auto& [size, box, stride] : dimensions) {
    if (rank == kMaxRank) {
      return cudaErrorInvalidValue;
    }
    sizes[rank] = static_cast<cuuint64_t>(size);
    boxes[rank] = static_cast<cuuint32_t>(box);
    steps[rank] = 1;
    stride_bytes[rank++] = static_cast<cuuint64_t>(stride);
  }
  // The driver takes no stride for the innermost dimension. Its error codes are the runtime's.
  return static_cast<cudaError_t>(
      encode(&map, type, rank, const_cast<void*>(data), sizes, stride_bytes + 1, boxes, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

cudaError_t encode_operand(CUtensorMap& map, CUtensorMapDataType type, const void* matrix,
                           int64_t rows, int64_t columns, int64_t row_stride, int box_rows) {
  const bool wide =
      type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const int bytes = wide ? 4 : 2;
  return encode_tensor_map(
      map, type, matrix,
      {{.size = columns, .box = kOperandRowBytes / bytes, .stride_bytes = bytes},
       {.size = rows, .box = box_rows, .stride_bytes = row_stride * bytes}},
      CU_TENSOR_MAP_SWIZZLE_128B);
}

bool has_wgmma_code() {
#ifdef WARPFUSE_HOPPER_CODE
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9 && device_limits().dependent_launch;  // true for code of 9.0
#else
  return false;
#endif
}

}  // namespace warpfuse::cuda
