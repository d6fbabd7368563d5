#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace warpfuse {

/// Whole numbers of a call, one a row, or one for all (`stride` 0).
struct RowNumbers {
  const void* data;
  bool wide;  // int64, else int32
  int64_t stride;
};

/// What cuts the distribution, as the kernels compare it.
struct SampleRule {
  bool greedy;
  double scale;         // log2(e) / temperature
  int64_t top_k;        // 0: all
  bool top_p;           // whether it cuts at all
  uint64_t left_out;    // 2^64 * (1 - top_p), rounded down
  uint64_t least_mass;  // that a kept token must have: min_p in units of 2^-43
};

/// A token a row, [rows] int64; -1 where the row has none to draw.
struct SampleTokensArguments {
  const void* logits;  // row r begins r * row_stride elements behind it
  DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  SampleRule rule;
  uint64_t seed;
  RowNumbers step;
  const int64_t* row_names;  // [rows] or null: the row's index
  int64_t* tokens;
};

}  // namespace warpfuse
