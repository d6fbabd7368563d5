#pragma once

#include <cuda_runtime_api.h>

#include "common/dropout.h"
#include "common/dtype.h"

namespace warpfuse::cuda {

// Dropout by itself, a Philox block a thread: for the mask, and beside the kernels of a dimension
// that is not the last. Launched on `stream` of the current device; the launch's error is the
// result.

/// Where the scale of dropout is applied: by drop_elements, or by the kernel before it, ahead of
/// its rounding.
enum class Scaled { here, before };

/// output = input * keep * scale; they may be the same. Seed and offset are written to used[2], if
/// it is not null.
cudaError_t drop_elements(DType dtype, const void* input, void* output, int64_t elements,
                          const Dropout& dropout, Scaled scaled, const RngSource& source,
                          int64_t* used, cudaStream_t stream);

/// mask[e] = whether element e is kept.
cudaError_t mark_elements(bool* mask, int64_t elements, const Dropout& dropout,
                          const RngSource& source, cudaStream_t stream);

}  // namespace warpfuse::cuda
