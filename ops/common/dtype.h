#pragma once

namespace warpfuse {

/// The dtypes that kernels take; a name that kernel files can use without torch.
enum class DType { float64, float32, float16, bfloat16 };

}  // namespace warpfuse
