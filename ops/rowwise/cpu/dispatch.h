#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "common/cpu_capability.h"
#include "common/dtype.h"

namespace warpfuse::WARPFUSE_ISA {

/// Calls function(T()) with the C++ type of `dtype`.
template <typename Function>
void dispatch(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::float64:  // NOLINT(bugprone-branch-clone): the branches differ in their type
      return function(double());
    case DType::float32:
      return function(float());
    case DType::float16:
      return function(c10::Half());
    case DType::bfloat16:
      return function(c10::BFloat16());
  }
}

}  // namespace warpfuse::WARPFUSE_ISA
