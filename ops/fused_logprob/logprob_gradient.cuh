#pragma once

#include <numbers>

#include "fused_logprob/logprob_row.cuh"

namespace warpfuse::cuda {

/// The gradient of one row's logits. With p = softmax(logits / T), H its entropy and g the
/// gradients of the results, column j gets
///   (g_logprob * (j == target) + p_j * (g_lse - g_logprob - g_entropy * (log(p_j) + H))) / T
template <typename C, bool kEntropy>
class RowGradient {
 public:
  __device__ RowGradient(const FusedLogprobBackwardArguments& arguments, int64_t row,
                         const Temperature<C>& temperature)
      : scale_(temperature.log2_scale) {
    constexpr C kLog2E = std::numbers::log2e_v<C>;
    const RowTarget target(arguments.targets, arguments.layout.columns, row);
    const C* const statistics = static_cast<const C*>(arguments.statistics) + 2 * row;
    max_ = statistics[0];
    log2_sum_ = statistics[1] * kLog2E;
    C grad_logprob = at_row(arguments.grad_logprob, row);
    C grad_entropy = kEntropy ? at_row(arguments.grad_entropy, row) : C(0);
    bool beside_lse = kEntropy || arguments.grad_logprob != nullptr;  // has another gradient
    if (target.kind == RowTarget::column) {
      target_ = target.index;
    } else if (target.kind == RowTarget::invalid && beside_lse) {
      grad_logprob = static_cast<C>(NAN);
    } else {
      grad_logprob = 0;
      beside_lse = kEntropy && target.kind != RowTarget::ignored;
      grad_entropy = beside_lse ? grad_entropy : C(0);
    }
    // The lse of a row of -inf throughout is flat, so that a masked shard does not spoil others.
    is_zero_ = !beside_lse && (arguments.grad_lse == nullptr || max_ == negative_infinity<C>());
    target_factor_ = grad_logprob * temperature.inverse;
    lse_factor_ = at_row(arguments.grad_lse, row) * temperature.inverse;
    if constexpr (kEntropy) {
      const C entropy_factor = grad_entropy * temperature.inverse;
      lse_factor_ -= entropy_factor * at_row(arguments.entropy, row);
      log2_factor_ = entropy_factor / -kLog2E;
    }
  }

  /// The gradient is zero for any logits.
  __device__ bool is_zero() const { return is_zero_; }

  /// Replaces kCount neighbouring logits, the first of them at `column`, by their gradients.
  template <int kCount>
  __device__ void apply(int64_t column, C (&values)[kCount]) const {
    const auto target = static_cast<uint64_t>(target_ - column);
    C target_gradient = 0;
    if (target < kCount) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        target_gradient =
            static_cast<uint64_t>(i) == target ? at_target(values[i]) : target_gradient;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C exponent = log2_probability(values[i]);
      values[i] = probability(exponent) * (probability_factor(exponent) - target_factor_);
    }
    if (target < kCount) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = static_cast<uint64_t>(i) == target ? target_gradient : values[i];
      }
    }
  }

 private:
  __device__ static C at_row(const void* values, int64_t row) {
    return values == nullptr ? C(0) : static_cast<const C*>(values)[row];
  }

  __device__ C log2_probability(C logit) const { return fma(logit - max_, scale_, -log2_sum_); }

  /// ex2 flushes results below 2^-126 to zero. Entropy's factor grows as p shrinks and would show
  /// it, hence the offset of 2^24.
  __device__ static C probability(C exponent) {
    if constexpr (kEntropy) {
      return fast_exp2(exponent + C(24)) * C(0x1p-24);
    } else {
      return fast_exp2(exponent);
    }
  }

  /// The factor of p from lse and entropy.
  __device__ C probability_factor(C exponent) const {
    if constexpr (kEntropy) {
      return fma(log2_factor_, LogprobPartial<C, true>::clamped(exponent), lse_factor_);
    } else {
      return lse_factor_;
    }
  }

  /// 1 - p comes from expm1: p may be next to 1.
  __device__ C at_target(C logit) const {
    const C exponent = log2_probability(logit);
    return fma(probability(exponent), probability_factor(exponent),
               -expm1(exponent * std::numbers::ln2_v<C>) * target_factor_);
  }

  int64_t target_ = -1;
  C scale_, max_, log2_sum_;
  C target_factor_, lse_factor_, log2_factor_ = 0;
  bool is_zero_ = false;
};

}  // namespace warpfuse::cuda
