#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "common/check.h"
#include "common/counters.h"
#include "common/registration.h"
#include "core/calls.h"

#ifdef WARPFUSE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>

#include "core/kernel.h"
#endif

/// Registers operators for Meta, CPU and CUDA:
///
///   WARPFUSE_OPERATORS(m) { register_operator<Softmax>(m); }
///
/// where an operator is defined once, for all backends:
///
///   struct Softmax {
///     static constexpr const char* kName = "softmax";  // in its schema
///
///     template <typename Backend>
///     static at::Tensor run(const at::Tensor& self, int64_t dim) {
///       check_floating(kName, "self", self);  // checks read no data, so they serve all backends
///       at::Tensor output = Backend::empty(self.sym_sizes(), self.options());
///       if (Backend::computes(self)) {
///         const at::Tensor input = self.contiguous();
///         Backend::launch(self, SoftmaxArguments{input.const_data_ptr(), ...});
///       }
///       return output;
///     }
///   };
///
/// computes(data) counts the call ("softmax.cpu"; the counter has no leading _) and says whether
/// there is something to compute: not on Meta, nor for empty data. launch(data, arguments) calls
/// launch_cpu() or, on data's device, launch_cuda() (core/kernel.h).
#define WARPFUSE_OPERATORS(m) WARPFUSE_REGISTER_(IMPL, std::nullopt, m)

namespace warpfuse {

/// An argument that an operator without gradients writes: its elements must not share memory, and
/// autograd, which would not see what is written, must not follow it.
inline void check_writable(const char* op, const char* argument, const at::Tensor& tensor) {
  WARPFUSE_CHECK(
      !c10::GradMode::is_enabled() || !tensor.requires_grad(), op, argument,
      c10::str("a tensor that autograd does not follow, such as ", argument, ".detach()"),
      "one that requires a gradient");
  WARPFUSE_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, op, argument,
                 "elements that each have memory of their own",
                 c10::str("strides ", tensor.strides()));
}

/// Before an operator writes to an argument, when all checks have passed. Bumps its version, so
/// that a backward that saved it finds it changed: the fallback of operators without gradients
/// passes over ADInplaceOrView, which would do so.
inline void begin_writing(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

template <typename Op>
struct Meta {
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::Meta;

  static at::Tensor empty(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
    return at::empty_symint(sizes, options);
  }

  static bool computes(const at::Tensor& /*data*/) { return false; }

  template <typename Arguments>
  static void launch(const at::Tensor& /*data*/, const Arguments& /*arguments*/) {}
};

template <typename Op>
struct Cpu {
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::CPU;

  static at::Tensor empty(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
    return at::detail::empty_cpu(C10_AS_INTARRAYREF_SLOW(sizes), options);
  }

  static bool computes(const at::Tensor& data) {
    calls_.add();
    return data.numel() > 0;
  }

  template <typename Arguments>
  static void launch(const at::Tensor& /*data*/, const Arguments& arguments) {
    launch_cpu(arguments);
  }

 private:
  static inline Counter calls_{Op::kName, ".cpu"};
};

#ifdef WARPFUSE_WITH_CUDA
/// Throws c10::Error unless the launch was accepted. Where the library holds no kernel for the
/// GPU, the message names the GPU and the architectures that were built.
void check_launch(const char* op, cudaError_t error);

/// Memory of the caching allocator on the current device.
class TensorWorkspace final : public Workspace {
 public:
  void* allocate(size_t bytes) override {
    held_.push_back(at::detail::empty_cuda({static_cast<int64_t>(bytes)},
                                           at::TensorOptions(at::kCUDA).dtype(at::kByte)));
    return held_.back().mutable_data_ptr();
  }

 private:
  c10::SmallVector<at::Tensor, 3> held_;
};

template <typename Op>
struct Cuda {
  static constexpr c10::DispatchKey kKey = c10::DispatchKey::CUDA;

  static at::Tensor empty(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
    return at::detail::empty_cuda(C10_AS_INTARRAYREF_SLOW(sizes), options);
  }

  static bool computes(const at::Tensor& data) {
    calls_.add();
    return data.numel() > 0;
  }

  template <typename Arguments>
  static void launch(const at::Tensor& data, const Arguments& arguments) {
    const c10::cuda::CUDAGuard guard(data.device());
    TensorWorkspace workspace;
    check_launch(Op::kName, launch_cuda(arguments, workspace, at::cuda::getCurrentCUDAStream()));
  }

 private:
  static inline Counter calls_{Op::kName, ".cuda"};
};
#endif

template <typename Op, typename Backend>
void register_backend(torch::Library& m) {
  m.impl(Op::kName,
         torch::dispatch(Backend::kKey, TORCH_FN(kernel_of<&Op::template run<Backend>>)));
}

template <typename Op>
void register_operator(torch::Library& m) {
  register_backend<Op, Meta<Op>>(m);
  register_backend<Op, Cpu<Op>>(m);
#ifdef WARPFUSE_WITH_CUDA
  register_backend<Op, Cuda<Op>>(m);
#endif
}

}  // namespace warpfuse
