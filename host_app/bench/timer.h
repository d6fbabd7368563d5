#pragma once

#include "bench/benchmark.h"
#include "bench/gpu_clock.h"
#include "bench/times.h"
#include "runtime/errors.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

// Something to time: call(i) works on the i-th of several inputs and returns its output (undefined
// where it has none of its own). The timer asks for i = 0, 1, ... sets - 1, 0, ...
struct Work {
  std::function<at::Tensor(int64_t)> call;
  int64_t sets;
};

// Microseconds per call.
struct Timing {
  Percentiles call;                          // CUDA: in a graph; CPU: with warm pages
  std::optional<double> event_p50;           // CUDA: one call after the L2 was flushed
  std::optional<double> default_malloc_p50;  // CPU: with malloc's defaults
  std::optional<int64_t> kernels;            // CUDA: kernels per call
  int discarded = 0;       // CUDA: samples while the clock was down, which `call` leaves out
  bool throttled = false;  // CUDA: most were such, and `call` has all of them
  std::string failure;     // why it could not be timed; then the rest is empty
};

// Of the exception that is being handled, for Timing::failure. A lack of memory begins alike on all
// devices.
inline std::string failure_text() {
  return describe(std::current_exception(), ExitCode::check_failed).message;
}

// Rounds that are finished after an interrupt.
inline constexpr int kMinRounds = 5;

// Number and length of samples; --quick takes fewer and shorter ones.
struct Effort {
  int rounds;        // samples of each work
  int short_rounds;  // of the secondary times
  double sample_us;  // minimum length of a sample
  int64_t large_copy_bytes;
  bool warm = false;  // the same inputs and outputs in every call, in the caches if they fit
};

class Timer {
 public:
  virtual ~Timer() = default;

  // The timing method, for the JSON.
  virtual Json method() const = 0;

  // Number of inputs of `bytes` to rotate over, so that no cache holds them all; 1 when warm.
  virtual int64_t sets_for(int64_t bytes) const = 0;

  // Interleaves the works, one sample of each per round, so that a clock drift affects all alike.
  // Returns early, with fewer rounds, when the user interrupts.
  virtual std::vector<Timing> time(const std::vector<Work>& works) = 0;

  // Copies of `bytes` (read and written together), one per method; the fastest is the floor.
  virtual std::vector<Work> copies(int64_t bytes) = 0;

  // Bytes read and written together, and the median time.
  struct LargeCopy {
    int64_t bytes;
    double p50_us;
    double bytes_per_us() const { return static_cast<double>(bytes) / p50_us; }
  };
  virtual LargeCopy large_copy() = 0;
  // Time of an empty kernel in the same kind of graph; null on the CPU.
  virtual std::optional<double> empty_kernel_us() = 0;

  // Called between rows.
  virtual void release_memory() = 0;
  // Runs `action` and synchronises. Returns the peak of tensor bytes above those before; null on
  // the CPU, where allocations are not counted.
  virtual std::optional<int64_t> peak_bytes(const std::function<void()>& action) = 0;
};

// The device of a run, for the JSON. No timer is needed, which on a GPU allocates twice the L2.
Json describe_cpu();
Json describe_gpu(const CudaRuntime& runtime);

// `clock`: null where nothing reads it.
std::unique_ptr<Timer> make_cuda_timer(CudaRuntime& runtime, c10::Device device, Effort effort,
                                       std::unique_ptr<GpuClock> clock);
std::unique_ptr<Timer> make_cpu_timer(Effort effort);

}  // namespace warpfuse::host::bench
