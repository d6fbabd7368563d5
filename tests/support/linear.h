#pragma once

// Linear layers for linear_dropout_softmax on a GPU, and what comes out in double.

#include <ATen/Context.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "support/dropout.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/poison.h"
#include "support/row_engine.h"
#include "support/skip.h"

#ifdef WARPFUSE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <rowwise/cuda/device_limits.h>
#endif

inline constexpr double kP = 0.2;  // of the dropout

/// Lets at::linear round float32 to TF32.
class Tf32 {
 public:
  explicit Tf32(bool allowed) : before_(at::globalContext().allowTF32CuBLAS()) {
    at::globalContext().setAllowTF32CuBLAS(allowed);
  }
  ~Tf32() { at::globalContext().setAllowTF32CuBLAS(before_); }
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  bool before_;
};

/// Values that TF32 holds exactly, so that products are.
inline at::Tensor operand(at::IntArrayRef sizes, at::ScalarType dtype, const at::Device& device,
                          double spread) {
  const at::Tensor values = random_tensor(sizes, dtype, device, spread);
  if (dtype == at::kFloat) {
    values.view(at::kInt).bitwise_and_(~0x1fff);
  }
  return values;
}

struct Layer {
  at::Tensor input, weight;
  std::optional<at::Tensor> bias;
};

inline Layer layer(at::IntArrayRef sizes, int64_t columns, at::ScalarType dtype,
                   const at::Device& device, bool has_bias = true) {
  const int64_t inner = sizes.back();
  return {operand(sizes, dtype, device, 1.0),
          operand({columns, inner}, dtype, device, 1 / std::sqrt(static_cast<double>(inner))),
          has_bias ? std::optional(random_tensor({columns}, dtype, device, 1.0)) : std::nullopt};
}

inline at::Tensor in_double(const std::optional<at::Tensor>& tensor) {
  return tensor ? tensor->detach().to(at::kDouble) : at::Tensor();
}

inline at::Tensor logits_of(const Layer& l) {
  const at::Tensor product = in_double(l.input).matmul(in_double(l.weight).t());
  return l.bias ? product + in_double(l.bias) : product;
}

/// The factors of the mask, on the GPU: _dropout_mask is compared with plain code elsewhere.
inline at::Tensor factors_of(at::IntArrayRef sizes, double p, const at::Tensor& rng) {
  const at::Tensor kept = dropout_mask(at::empty(sizes, rng.options().dtype(at::kByte)), p, rng);
  return kept.to(at::kDouble) * (p < 1 ? 1 / (1 - p) : 0.0);
}

/// One rounding to the dtype, and the error of logits that are summed up in float32 and then
/// scaled.
inline bool is_near(const at::Tensor& output, const at::Tensor& expected, int64_t inner,
                    double scale = 1 / (1 - kP)) {
  const at::ScalarType dtype = output.scalar_type();
  const double unit = std::ldexp(1.0, dtype == at::kHalf ? -11 : dtype == at::kFloat ? -24 : -8);
  const double of_logits = (2e-5 + 3e-8 * static_cast<double>(inner)) * scale;
  const double floor = dtype == at::kHalf ? std::ldexp(1.0, -25) : 1e-37;
  const at::Tensor distance = (output.to(at::kDouble) - expected).abs();
  return (distance <= expected * (unit + of_logits) + floor).all().item<bool>();
}

#ifdef WARPFUSE_WITH_CUDA
/// Whether there are GPU code and room for the kernel.
inline bool has_kernel() {
  const warpfuse::RowLimits limits = row_limits();
  return at::cuda::getCurrentDeviceProperties()->major == 9 &&
         warpfuse::cuda::device_limits().dependent_launch && limits.cluster_blocks >= 2 &&
         limits.shared_bytes >= size_t{209} * 1024;
}

/// Skips the test case where not. Returns whether it did.
inline bool skip_without_kernel() {
  const bool has = has_kernel();
  if (!has) {
    skip_test("no such kernel: no GPU of Hopper's, code for older ones, or little shared memory");
  }
  return !has;
}

/// Of a block, of which two form a cluster. The kernel is for grids of between half of the H200's
/// 132 multiprocessors and all.
inline constexpr int64_t kColumns = 128;

/// kernels: so many times the kernel runs.
inline void check_layer(const Layer& l, double p, int64_t kernels = 1, bool split = false) {
  const at::Device device = l.input.device();
  INFO(describe(l.input) << " x " << describe(l.weight) << (l.bias ? "" : ", no bias")
                         << ", p = " << p);
  const at::Tensor rng = rng_of(-7, 1LL << 33, device);
  const CounterDelta tiles("tier.tile");
  const Poison poison;
  const auto [output, used] = linear_dropout_softmax(l.input, l.weight, l.bias, p, rng, split);
  CHECK(tiles() == kernels);
  CHECK(used.equal(rng));
  CHECK(output.scalar_type() == l.input.scalar_type());
  const at::Tensor logits = logits_of(l);
  REQUIRE(output.sizes() == logits.sizes());
  CHECK(is_near(output, at::softmax(logits * factors_of(logits.sizes(), p, rng), -1),
                l.input.size(-1), p < 1 ? 1 / (1 - p) : 1));
}

/// The most memory that `run` has beyond what is there before; its result included.
template <typename Run>
int64_t peak_bytes(const at::Device& device, const Run& run) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  run();
  allocator::resetPeakStats(device.index());
  const auto before = allocator::getDeviceStats(device.index()).allocated_bytes[0].current;
  const at::Tensor result = run();
  return allocator::getDeviceStats(device.index()).allocated_bytes[0].peak - before;
}
#endif
