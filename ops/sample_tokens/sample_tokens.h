#pragma once

#include <cstdint>

#include "common/cpu_capability.h"
#include "common/dtype.h"
#include "core/kernel.h"

namespace warpfuse {

/// Integers of a call, one per row, or one for all (`stride` 0).
struct RowIntegers {
  const void* data;
  bool is_int64;  // else int32
  int64_t stride;
};

/// The cuts of the distribution, as the kernels compare them.
struct SampleRule {
  bool greedy;
  double scale;       // log2(e) / temperature
  int64_t top_k;      // 0: all
  bool has_top_p;     // top_p < 1
  uint64_t left_out;  // 2^64 * (1 - top_p), rounded down
  uint64_t min_mass;  // of a kept token: min_p in units of 2^-43
};

/// Tokens of a row at most.
inline constexpr int64_t kMaxColumns = 1'048'576;

/// A token per row; -1 where the row has none to draw.
struct SampleTokensArguments {
  const void* logits;  // row r starts r * row_stride elements after it
  DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  SampleRule rule;
  uint64_t seed;
  RowIntegers step;
  const int64_t* row_names;  // [rows] or null: the row's index
  int64_t* tokens;           // [rows]
};

void launch_cpu(const SampleTokensArguments& arguments);
cudaError_t launch_cuda(const SampleTokensArguments& arguments, Workspace& workspace,
                        cudaStream_t stream);

// Rows [begin, end), once per instruction set.
WARPFUSE_DECLARE_CPU_KERNEL(sample_tokens_cpu, SampleTokensArguments)

}  // namespace warpfuse
