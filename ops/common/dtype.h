#pragma once

namespace warpfuse {

/// The dtypes that kernels take; a name that kernel files can use without torch.
enum class DType { float64, float32, float16, bfloat16 };

constexpr int element_bytes(DType dtype) {
  return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2;
}

}  // namespace warpfuse
