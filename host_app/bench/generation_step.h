#pragma once

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/language_model.h"

namespace warpfuse::host::bench {

// A CUDA graph of so many kernels that do nothing: what their launches cost.
double empty_kernels_us(CudaRuntime& runtime, int64_t kernels);

// What a decode step spends in its layers' softmaxes, as the variant computes them, by themselves:
// a graph of them on a GPU. None for sdpa, whose softmax is inside another kernel.
std::optional<double> softmaxes_us(const std::string& variant, const LanguageModel& model,
                                   int64_t batch, int64_t slots, CudaRuntime* runtime);

}  // namespace warpfuse::host::bench
