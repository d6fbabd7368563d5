#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/dtype.h"

namespace warpfuse::cuda {

/// Returns function(T()) with the CUDA type of `dtype`, which is not float64.
template <typename Function>
auto dispatch_narrow(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float32:
      return function(float());
    case DType::float16:
      return function(__half());
    default:
      return function(__nv_bfloat16());
  }
}

/// dispatch_narrow(), and float64.
template <typename Function>
auto dispatch(DType dtype, const Function& function) {
  return dtype == DType::float64 ? function(double()) : dispatch_narrow(dtype, function);
}

}  // namespace warpfuse::cuda
