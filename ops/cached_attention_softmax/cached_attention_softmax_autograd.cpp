#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>
#include <warpfuse/cached_attention_softmax.h>

#include "common/check.h"
#include "common/registration.h"
#include "core/autocast.h"

namespace warpfuse {
namespace {

constexpr const char* kOp = "cached_attention_softmax";

// For inference: differentiation is an error.
WARPFUSE_LIBRARY_IMPL(Autograd, m) {
  m.impl(kOp, torch::autograd::autogradNotImplementedFallback());
}

// --- Autocast: the cache is the caller's, and what is written to it takes its dtype -------------

template <at::DeviceType kDevice>
at::Tensor autocast_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, at::Tensor& cache, int64_t layer,
                              const at::Tensor& positions, double scale, int64_t window) {
  const at::ScalarType dtype = cache.scalar_type();
  WARPFUSE_CHECK(is_supported(dtype) && dtype != at::kDouble, kOp, "cache",
                 "float32, float16 or bfloat16", dtype);
  const AutocastTo<kDevice> cast(dtype);
  return cached_attention_softmax(cast(query), cast(key), cast(value), cache, layer, positions,
                                  scale, window);
}

WARPFUSE_LIBRARY_IMPL(AutocastCUDA, m) { m.impl(kOp, autocast_attention<at::kCUDA>); }

WARPFUSE_LIBRARY_IMPL(AutocastCPU, m) { m.impl(kOp, autocast_attention<at::kCPU>); }

}  // namespace
}  // namespace warpfuse
