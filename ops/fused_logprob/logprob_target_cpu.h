#pragma once

// What forward and backward ask of a row before its logits. Only files compiled per instruction set
// include this.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/cpu_capability.h"
#include "fused_logprob/fused_logprob_arguments.h"
#include "rowwise/cpu/dispatch.h"

namespace warpfuse::WARPFUSE_ISA {

constexpr int64_t kIgnored = -1;
constexpr int64_t kElsewhere = -2;  // in another shard

/// The column of a row's target, kIgnored or kElsewhere.
inline int64_t target_column(const LogprobTargets& targets, int64_t columns, int64_t row) {
  const int64_t target = targets.is_int64 ? static_cast<const int64_t*>(targets.data)[row]
                                          : static_cast<const int32_t*>(targets.data)[row];
  if (target == targets.ignore_index) {
    return kIgnored;
  }
  const bool inside = target >= targets.vocab_start && target - targets.vocab_start < columns;
  return inside ? target - targets.vocab_start : kElsewhere;
}

/// 1 / temperature, kept where 0 and -inf times it are still 0 and -inf.
template <typename C>
C inverse_of(double temperature) {
  return std::clamp(static_cast<C>(1 / temperature), std::numeric_limits<C>::min(),
                    std::numeric_limits<C>::max());
}

/// Calls function(T(), std::bool_constant<flag>()).
template <typename Function>
void dispatch_with(DType dtype, bool flag, const Function& function) {
  dispatch(dtype, [&](auto zero) {
    flag ? function(zero, std::true_type()) : function(zero, std::false_type());
  });
}

}  // namespace warpfuse::WARPFUSE_ISA
