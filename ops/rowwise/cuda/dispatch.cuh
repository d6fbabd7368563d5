#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/dtype.h"

namespace warpfuse::cuda {

/// Returns function(T()) with the CUDA type of `dtype`.
template <typename Function>
auto dispatch(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float64:
      return function(double());
    case DType::float32:
      return function(float());
    case DType::float16:
      return function(__half());
    default:
      return function(__nv_bfloat16());
  }
}

}  // namespace warpfuse::cuda
