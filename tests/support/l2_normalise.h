#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

/// output = input / |input|, rows of float, by one kernel of the row engine: "warp", "chunk",
/// "block", "persistent", "shared", "split" or "cooperative". Rows have at most 1024 elements.
cudaError_t l2_normalise(const std::string& kernel, const float* input, float* output, int64_t rows,
                         int64_t columns, cudaStream_t stream);
