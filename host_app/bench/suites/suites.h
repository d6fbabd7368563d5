#pragma once

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

extern const Benchmark kSoftmax, kLogSoftmax;                                  // softmax.cpp
extern const Benchmark kScaledMaskedSoftmax, kScaledMaskedSoftmaxDropout;      // attention.cpp
extern const Benchmark kFusedLogprob, kFusedLogprobLse, kFusedLogprobEntropy;  // logprob.cpp
extern const Benchmark kSampleTokens;                                          // sampling.cpp
extern const Benchmark kDropoutSoftmax, kSoftmaxDropout;                       // dropout.cpp
extern const Benchmark kLinearDropoutSoftmax;                                  // linear_dropout.cpp
extern const Benchmark kMsDeformAttn, kMsDeformAttnUniform;                    // ms_deform_attn.cpp
extern const Benchmark kCachedAttentionSoftmax;  // cached_attention.cpp
extern const Benchmark kNormLinear, kNormLinearGelu, kLinearResidual,
    kLinearArgmax;  // decode_linear.cpp

// In the order that the command line lists them.
inline constexpr std::array kBenchmarks{&kSoftmax,
                                        &kLogSoftmax,
                                        &kScaledMaskedSoftmax,
                                        &kScaledMaskedSoftmaxDropout,
                                        &kFusedLogprob,
                                        &kFusedLogprobLse,
                                        &kFusedLogprobEntropy,
                                        &kSampleTokens,
                                        &kDropoutSoftmax,
                                        &kSoftmaxDropout,
                                        &kLinearDropoutSoftmax,
                                        &kMsDeformAttn,
                                        &kMsDeformAttnUniform,
                                        &kNormLinear,
                                        &kNormLinearGelu,
                                        &kLinearResidual,
                                        &kCachedAttentionSoftmax,
                                        &kLinearArgmax};

}  // namespace warpfuse::host::bench
