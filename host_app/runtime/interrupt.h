#pragma once

namespace warpfuse::host {

// While one lives, the first Ctrl-C (SIGINT) is only noted; the second ends the process as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

bool interrupted();

}  // namespace warpfuse::host
