#include <cuda_runtime_api.h>

#include "common/launch_chain.h"

namespace warpfuse {
namespace {

// The one node that a captured stream's next node depends on.
struct CapturedNode {
  unsigned long long capture = 0;  // 0: the stream is not captured, or depends on several nodes
  cudaGraphNode_t node = nullptr;

  bool operator==(const CapturedNode&) const = default;
};

CapturedNode last_node(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture, nullptr, &nodes, &edges, &count);
  const bool is_one = error == cudaSuccess && status == cudaStreamCaptureStatusActive && count == 1;
  return is_one ? CapturedNode{capture, nodes[0]} : CapturedNode{};
}

// A capture belongs to a thread, in the mode that libtorch captures in.
thread_local CapturedNode last_of_chain;

}  // namespace

bool LaunchChain::continues() const {
  const CapturedNode last = last_node(stream_);
  return last.capture != 0 && last == last_of_chain;
}

void LaunchChain::extend() const { last_of_chain = last_node(stream_); }

}  // namespace warpfuse
