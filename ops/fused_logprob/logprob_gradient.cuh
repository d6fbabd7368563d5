#pragma once

#include "fused_logprob/logprob_row.cuh"
#include "rowwise/cuda/pack.cuh"

namespace warpfuse::cuda {

/// The gradient of one row's logits. With p = softmax(logits / T), H its entropy and g the
/// gradients of the results, that of column j is
///   (g_logprob * (j == target) + p_j * (g_lse - g_logprob - g_entropy * (log(p_j) + H))) / T
template <typename C, bool kEntropy>
class RowGradient {
 public:
  __device__ RowGradient(const FusedLogprobBackwardArguments& arguments, int64_t row,
                         const Temperature<C>& temperature)
      : scale_(temperature.log2_scale) {
    constexpr C kLog2E = static_cast<C>(1.44269504088896340736);
    const RowTarget target(arguments.targets, arguments.layout.columns, row);
    const C* const statistics = static_cast<const C*>(arguments.statistics) + 2 * row;
    max_ = statistics[0];
    log2_sum_ = statistics[1] * kLog2E;
    C of_logprob = of_row(arguments.grad_logprob, row);
    C of_entropy = kEntropy ? of_row(arguments.grad_entropy, row) : C(0);
    bool some = kEntropy || arguments.grad_logprob != nullptr;  // beside that of lse
    if (target.kind == RowTarget::column) {
      target_ = target.index;
    } else if (target.kind == RowTarget::invalid && some) {
      of_logprob = static_cast<C>(NAN);
    } else {
      of_logprob = 0;
      some = kEntropy && target.kind != RowTarget::ignored;
      of_entropy = some ? of_entropy : C(0);
    }
    // The lse of a row of -inf throughout is flat, so that a masked shard does not spoil others.
    zero_ = !some && (arguments.grad_lse == nullptr || max_ == negative_infinity<C>());
    of_target_ = of_logprob * temperature.inverse;
    of_lse_ = of_row(arguments.grad_lse, row) * temperature.inverse;
    if constexpr (kEntropy) {
      const C factor = of_entropy * temperature.inverse;
      of_lse_ -= factor * of_row(arguments.entropy, row);
      of_log_ = factor / -kLog2E;
    }
  }

  /// It is zero, whatever the logits are.
  __device__ bool zero() const { return zero_; }

  /// Of kCount neighbouring logits, the first of them at `column`.
  template <int kCount>
  __device__ void apply(int64_t column, C (&values)[kCount]) const {
    const auto of_target = static_cast<uint64_t>(target_ - column);
    C exact = 0;
    if (of_target < kCount) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        exact = static_cast<uint64_t>(i) == of_target ? at_target(values[i]) : exact;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C exponent = log2_probability(values[i]);
      values[i] = probability(exponent) * (of_rest(exponent) - of_target_);
    }
    if (of_target < kCount) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        values[i] = static_cast<uint64_t>(i) == of_target ? exact : values[i];
      }
    }
  }

 private:
  __device__ static C of_row(const void* values, int64_t row) {
    return values == nullptr ? C(0) : static_cast<const C*>(values)[row];
  }

  __device__ C log2_probability(C logit) const { return fma(logit - max_, scale_, -log2_sum_); }

  /// The instruction flushes what is below 2^-126 to zero; the entropy's factor, which is the
  /// larger the smaller p is, would show it.
  __device__ static C probability(C exponent) {
    if constexpr (kEntropy) {
      return fast_exp2(exponent + C(24)) * C(0x1p-24);
    } else {
      return fast_exp2(exponent);
    }
  }

  /// What p is multiplied by for the lse and the entropy.
  __device__ C of_rest(C exponent) const {
    if constexpr (kEntropy) {
      return fma(of_log_, Summary<C, true>::bounded(exponent), of_lse_);
    } else {
      return of_lse_;
    }
  }

  /// With 1 - p in full precision, where p is next to one.
  __device__ C at_target(C logit) const {
    constexpr C kLn2 = static_cast<C>(0.69314718055994530942);
    const C exponent = log2_probability(logit);
    return fma(probability(exponent), of_rest(exponent), -expm1(exponent * kLn2) * of_target_);
  }

  int64_t target_ = -1;
  C scale_, max_, log2_sum_;
  C of_target_, of_lse_, of_log_ = 0;
  bool zero_ = false;
};

}  // namespace warpfuse::cuda
