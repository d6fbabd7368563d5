#include "linear_dropout_softmax/tensor_map.h"

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace warpfuse::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, by the runtime: the library is not linked with the driver's.
Encode encode_function() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault,
                                   &result);
  TORCH_CHECK(found != nullptr, "warpfuse: the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(found);
}

CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  }
}

}  // namespace

CUtensorMap tensor_map(const void* matrix, DType dtype, int64_t rows, int64_t inner, int box_rows,
                       int box_bytes) {
  static const Encode encode = encode_function();
  const int element = element_bytes(dtype);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[] = {sizes[0] * element};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_bytes / element),
                            static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t strides[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, type_of(dtype), 2, const_cast<void*>(matrix), sizes, row_bytes, box, strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(result == CUDA_SUCCESS, "warpfuse: cuTensorMapEncodeTiled: error ",
              static_cast<int>(result));
  return map;
}

}  // namespace warpfuse::cuda
