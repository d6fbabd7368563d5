#pragma once

#include <cstddef>

namespace warpfuse {

/// Where a kernel's launch gets memory for partial results: the few launches that need some ask for
/// it. It stays valid for what was queued on the stream before the workspace is gone.
class Workspace {
 public:
  virtual ~Workspace() = default;
  /// Device memory, aligned to 256 bytes.
  virtual void* allocate(size_t bytes) = 0;
};

}  // namespace warpfuse
