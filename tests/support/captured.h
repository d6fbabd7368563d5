#pragma once

// A call in a CUDA graph.

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>

/// A captured call, and what it returned. It runs twice: once to warm up, then to be captured. The
/// current stream is not the default one.
class Captured {
 public:
  template <typename Call>
  explicit Captured(const Call& call) {
    call();
    graph_.capture_begin();
    output_ = call();
    graph_.capture_end();
  }

  /// The output of another run, which finds it spoiled.
  const at::Tensor& replay() {
    output_.fill_(-7);
    graph_.replay();
    return output_;
  }

 private:
  at::cuda::CUDAGraph graph_;
  at::Tensor output_;
};
