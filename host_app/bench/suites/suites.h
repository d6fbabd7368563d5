#pragma once

#include <array>

#include "bench/benchmark.h"

namespace warpfuse::host::bench {

extern const Benchmark kSoftmax, kLogSoftmax;                // softmax.cpp
extern const Benchmark kScaledMaskedSoftmax;                 // attention.cpp
extern const Benchmark kFusedLogprob;                        // logprob.cpp
extern const Benchmark kDropoutSoftmax, kSoftmaxDropout;     // dropout.cpp
extern const Benchmark kLinearDropoutSoftmax;                // linear_dropout.cpp
extern const Benchmark kMsDeformAttn, kMsDeformAttnUniform;  // ms_deform_attn.cpp

// In the order that the command line lists them.
inline constexpr std::array kBenchmarks{&kSoftmax,
                                        &kLogSoftmax,
                                        &kScaledMaskedSoftmax,
                                        &kFusedLogprob,
                                        &kDropoutSoftmax,
                                        &kSoftmaxDropout,
                                        &kLinearDropoutSoftmax,
                                        &kMsDeformAttn,
                                        &kMsDeformAttnUniform};

}  // namespace warpfuse::host::bench
