#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "common/cpu_capability.h"
#include "common/dtype.h"

namespace warpfuse::WARPFUSE_ISA {

/// Calls function(T()) with the C++ type of `dtype`, which is not float64.
template <typename Function>
void dispatch_narrow(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float32:
      return function(float());
    case DType::float16:
      return function(c10::Half());
    default:
      return function(c10::BFloat16());
  }
}

/// dispatch_narrow(), and float64.
template <typename Function>
void dispatch(DType dtype, const Function& function) {
  dtype == DType::float64 ? function(double()) : dispatch_narrow(dtype, function);
}

}  // namespace warpfuse::WARPFUSE_ISA
