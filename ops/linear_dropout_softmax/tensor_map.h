#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/dtype.h"

namespace warpfuse::cuda {

/// How the copy engine sees a contiguous matrix [rows, inner] whose address and rows are divisible
/// by 16 bytes: it fetches boxes of box_rows x box_bytes in the swizzle of 128 bytes, with zeros
/// for what lies outside. float32 is rounded to TF32 on the way. Throws c10::Error where the driver
/// refuses.
CUtensorMap tensor_map(const void* matrix, DType dtype, int64_t rows, int64_t inner, int box_rows,
                       int box_bytes);

}  // namespace warpfuse::cuda
