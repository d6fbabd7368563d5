#pragma once

// Calls in CUDA graphs and on streams.

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>

#include "catch.h"

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

/// Checks the results of a call in a CUDA graph and of calls on another stream at the same time.
template <typename Call>
void check_in_a_graph_and_on_two_streams(const Call& call, const at::Tensor& expected) {
  const c10::cuda::CUDAStream one = c10::cuda::getStreamFromPool(),
                              two = c10::cuda::getStreamFromPool();
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard on_one(one);
  Captured captured(call);
  const at::Tensor replayed = captured.replay();
  at::Tensor other;
  {
    const c10::cuda::CUDAStreamGuard on_two(two);
    for (int i = 0; i < 20; ++i) {
      other = call();
    }
  }
  one.synchronize();
  two.synchronize();
  CHECK(at::equal(replayed, expected));
  CHECK(at::equal(other, expected));
}

/// What `call` gives on a side stream where `input` gets its values late: the call waits for them,
/// and the host for nothing.
template <typename Call>
at::Tensor run_late(const at::Tensor& input, const Call& call) {
  const at::Tensor values = input.clone();
  input.zero_();
  c10::cuda::getDefaultCUDAStream().synchronize();
  const auto side = c10::cuda::getStreamFromPool();
  at::Tensor output;
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    at::cuda::sleep(200'000'000);  // about 0.1 s
    input.copy_(values);
    output = call();
    CHECK(!side.query());
  }
  side.synchronize();
  return output;
}
