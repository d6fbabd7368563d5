#pragma once

#include "core/kernel.h"

namespace warpfuse {

/// Kernels that follow one another on a stream that is captured into a CUDA graph.
///
/// Under programmatic dependent launch a kernel starts before the one ahead of it has ended. It may
/// then read what no kernel of its chain writes, before griddepcontrol.wait: the first kernel of a
/// chain lets the second one start only after its own wait, and so after all that came before the
/// chain. Kernels of a chain write activations and caches, never weights. Where a weight is updated
/// in place, the update is a kernel of somebody else: the next one of ours begins a chain, and
/// reads its weights after its wait.
///
/// Outside a capture the kernel ahead is not known, so every kernel begins a chain.
class LaunchChain {
 public:
  explicit LaunchChain(cudaStream_t stream) : stream_(stream) {}

  /// Whether the kernel that is launched next follows one of the chain.
  bool continues() const;

  /// After its launch.
  void extend() const;

 private:
  cudaStream_t stream_;
};

}  // namespace warpfuse
