#include "bench/generation_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <warpfuse/scaled_masked_softmax.h>

#include <cmath>
#include <limits>

#include "bench/times.h"

namespace warpfuse::host::bench {
namespace {

constexpr int kWarmUps = 3;
constexpr int kSamples = 15;

// Of a graph of `work` on a GPU, of `work` itself on the CPU.
double repeated_us(CudaRuntime* runtime, const std::function<void()>& work) {
  if (runtime == nullptr) {
    return median_us(kWarmUps, kSamples, [&] { return timed_us(nullptr, work); });
  }
  runtime->warm_up(work);
  const std::unique_ptr<CudaGraph> graph = runtime->capture(work);
  return median_us(kWarmUps, kSamples, [&] { return timed_us(runtime, [&] { graph->replay(); }); });
}

}  // namespace

double empty_kernels_us(CudaRuntime& runtime, int64_t kernels) {
  return repeated_us(&runtime, [&] {
    for (int64_t i = 0; i < kernels; ++i) {
      runtime.launch_empty_kernel();
    }
  });
}

std::optional<double> softmaxes_us(const std::string& variant, const LanguageModel& model,
                                   int64_t batch, int64_t slots, CudaRuntime* runtime) {
  const LanguageModelSpec& spec = model.spec();
  const at::TensorOptions options = at::TensorOptions().dtype(model.dtype()).device(model.device());
  const at::Tensor scores = at::randn({batch, spec.heads, 1, slots}, options);
  const at::Tensor positions = at::full({batch, 1}, slots - 1, options.dtype(at::kLong));
  const at::Tensor keys = at::arange(slots, options.dtype(at::kLong));
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  if (variant == "fused") {
    return repeated_us(runtime, [&] {
      for (int64_t layer = 0; layer < spec.layers; ++layer) {
        scaled_masked_softmax(scores, scale, {}, "none", positions);
      }
    });
  }
  if (variant == "baseline") {
    return repeated_us(runtime, [&] {
      const at::Tensor hidden = keys > positions.unsqueeze(1).unsqueeze(3);
      for (int64_t layer = 0; layer < spec.layers; ++layer) {
        at::softmax((scores * scale).masked_fill(hidden, -std::numeric_limits<double>::infinity()),
                    -1);
      }
    });
  }
  return std::nullopt;
}

}  // namespace warpfuse::host::bench
