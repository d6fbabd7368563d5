#include "common/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>

#include <mutex>

#include "common/check.h"
#include "common/dropout.h"
#include "core/calls.h"

#ifdef WARPFUSE_WITH_CUDA
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace warpfuse {
namespace {

// The offset is below 2^63, as those of CUDA's generators are.
RngSource draw_on_cpu() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  auto* engine = at::check_generator<at::CPUGeneratorImpl>(generator);
  RngSource source;
  source.seed = engine->random64();
  source.offset = engine->random64() >> 1;
  return source;
}

#ifdef WARPFUSE_WITH_CUDA
// The next offset of the device's generator. While a CUDA graph is captured it is a place in
// memory, which each replay finds advanced.
RngSource draw_on_cuda(c10::Device device) {
  constexpr uint64_t kOffsets = 4;           // per call; the generator counts in fours
  const c10::cuda::CUDAGuard guard(device);  // its current stream may be capturing
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  const std::scoped_lock lock(generator.mutex());
  const at::PhiloxCudaState state =
      at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(kOffsets);
  if (state.captured_) {
    return {.seed_at = state.seed_.ptr,
            .offset_at = state.offset_.ptr,
            .offset = state.offset_intragraph_,
            .settled = true};  // written before the graph begins
  }
  return {.seed = state.seed_.val, .offset = state.offset_.val, .settled = true};
}
#endif

struct DropoutMask : Calls<DropoutMask, at::Tensor(const at::Tensor&, double, const at::Tensor&)> {
  static constexpr const char* kName = "_dropout_mask";
};

RngSource draw(c10::Device device) {
#ifdef WARPFUSE_WITH_CUDA
  if (device.is_cuda()) {
    return draw_on_cuda(device);
  }
#endif
  TORCH_INTERNAL_ASSERT(device.is_cpu());
  return draw_on_cpu();
}

}  // namespace

void check_dropout_p(const char* op, double p) {
  WARPFUSE_CHECK(p >= 0 && p <= 1, op, "dropout_p", "a probability from 0 to 1", p);
}

void check_rng(const char* op, const at::Tensor& rng, const at::Tensor& data) {
  check_tensor(op, "rng", rng);
  WARPFUSE_CHECK(rng.scalar_type() == at::kLong, op, "rng", "Long", rng.scalar_type());
  WARPFUSE_CHECK(rng.dim() == 1 && rng.sym_size(0) == 2, op, "rng", "shape [2]", rng.sym_sizes());
  check_same_device(op, "rng", rng, data);
}

void check_rng(const char* op, const std::optional<at::Tensor>& rng, const at::Tensor& data) {
  if (rng.has_value()) {
    check_rng(op, *rng, data);
  }
}

RngSource rng_source(const at::Tensor& rng) {
  const auto* at = rng.const_data_ptr<int64_t>();
  return {.seed_at = at, .offset_at = at + 1};
}

RngSource rng_source(const std::optional<at::Tensor>& rng, at::Tensor& held, c10::Device device) {
  if (!rng.has_value()) {
    return draw(device);
  }
  held = rng->contiguous();
  return rng_source(held);
}

at::Tensor dropped(const at::Tensor& x, double dropout_p, const at::Tensor& rng) {
  return x * DropoutMask::call(x, dropout_p, rng) * Dropout(dropout_p).scale;
}

}  // namespace warpfuse
