#pragma once

#include <csignal>

namespace warpfuse::host {

// While one lives, the first Ctrl-C (SIGINT) is only noted; the second ends the process as usual. A
// process that was started with SIGINT ignored, as by nohup or a shell's background job, goes on
// ignoring it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

bool interrupted();

}  // namespace warpfuse::host
