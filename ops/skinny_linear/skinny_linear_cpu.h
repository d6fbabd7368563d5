#pragma once

#include "skinny_linear/skinny_linear.h"

namespace warpfuse {

/// The largest output of a row so far, as greedy sampling ranks them.
struct BestOutput {
  static constexpr int64_t kNone = -1, kNaN = -2;

  float value;  // rounded to the dtype
  int64_t output;

  /// A NaN is the best of all, then larger values, then lower indices.
  bool operator<(const BestOutput& other) const {
    if (output == kNaN || other.output == kNone) {
      return false;
    }
    if (other.output == kNaN || output == kNone) {
      return true;
    }
    return value < other.value || (value == other.value && output > other.output);
  }
};

/// Two steps of a call, once per instruction set.
struct SkinnyLinearTask {
  SkinnyLinearArguments arguments;
  float* x;          // [rows, columns], the normalised input
  BestOutput* best;  // [rows], in place of an output; or null
};

WARPFUSE_DECLARE_CPU_KERNEL(skinny_norm_cpu, SkinnyLinearTask)    // of rows, into x
WARPFUSE_DECLARE_CPU_KERNEL(skinny_linear_cpu, SkinnyLinearTask)  // of outputs

}  // namespace warpfuse
