#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace warpfuse::host {

// Chooses the number of threads on a CPU that other processes use too. A parallel region ends when
// its last thread has run; one that has lost its processor makes all others wait for a time slice,
// at each of the hundreds of regions of a decode step, so that fewer threads are many times faster.
class LoadWatch {
 public:
  using Clock = std::chrono::steady_clock;

  LoadWatch(int threads, Clock::time_point now, int64_t preemptions)
      : most_(threads), threads_(threads), since_(now), preemptions_(preemptions) {}

  // The threads for the next piece of work. `preemptions`: how often a thread of this process lost
  // its processor to another process so far (getrusage's ru_nivcsw). They are looked at every 100
  // ms: many halve the threads; without any for a while, which grows with each vain attempt, twice
  // as many are tried again.
  int threads_for_next(Clock::time_point now, int64_t preemptions);

 private:
  int most_;
  int threads_;
  Clock::time_point since_;
  int64_t preemptions_;
  int calm_ = 0;       // windows without load
  int patience_ = 10;  // that are waited for before more threads are tried
};

// The threads of CPU kernels. `asked` is taken as it is. Else libtorch's own number, which follows
// the processors that the process may run on, is cut down to what its cgroups grant, and, where
// `watched`, changes with the load that watch_load() sees.
void choose_threads(std::optional<int64_t> asked, bool watched);

// Called after each piece of work on the CPU.
void watch_load();

// Processors that the cgroups of this process grant, by quota: at least 1; none without a quota.
std::optional<int> processors_by_quota();

}  // namespace warpfuse::host
