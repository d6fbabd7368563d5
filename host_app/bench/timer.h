#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/percentiles.h"

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

// Microseconds a call.
struct Timing {
  Percentiles call;                          // CUDA: in a graph; CPU: with warm pages
  std::optional<double> event_p50;           // CUDA: one call after the L2 was flushed
  std::optional<double> default_malloc_p50;  // CPU: with malloc as it is without tuning
  std::optional<int64_t> kernels;            // CUDA: of one call
  std::string failure;                       // why it could not be timed; then the rest is empty
};

// How often is measured; --quick takes the smaller figures.
struct Effort {
  int rounds;        // samples of each work
  int short_rounds;  // of what stands beside the main figure
  double sample_us;  // the least length of a sample
  int64_t large_copy_bytes;
};

class Timer {
 public:
  virtual ~Timer() = default;

  // How the figures come about, for the JSON.
  virtual Json method() const = 0;

  // The number of inputs of so many bytes to rotate over, so that no cache holds them all.
  virtual int64_t sets_for(int64_t bytes) const = 0;

  // Round by round one sample of each work, so that a drift of the clocks meets all alike. Ends
  // early, with fewer rounds, when the user interrupts.
  virtual std::vector<Timing> time(const std::vector<Work>& works) = 0;

  // Copies of so many bytes (read and written bytes together) by each means there is; the fastest
  // is the floor that counts.
  virtual std::vector<Work> copies(int64_t bytes) = 0;

  // Of the large copy: bytes read and written in all, and a time.
  struct LargeCopy {
    int64_t bytes;
    double p50_us;
    double bytes_per_us() const { return static_cast<double>(bytes) / p50_us; }
  };
  virtual LargeCopy large_copy() = 0;
  // A kernel that does nothing, in the same kind of graph; null on the CPU.
  virtual std::optional<double> empty_kernel_us() = 0;

  // Between rows.
  virtual void release_memory() = 0;
  // Runs `action` and waits until what it launched is done. The most bytes that tensors took
  // meanwhile beyond those before; none on the CPU, where that is not counted.
  virtual std::optional<int64_t> peak_bytes(const std::function<void()>& action) = 0;
};

// The device of a run, for the JSON: a timer, which on a GPU takes twice the L2's size, is not
// needed.
Json describe_cpu();
Json describe_gpu(const CudaRuntime& runtime);

std::unique_ptr<Timer> make_cuda_timer(CudaRuntime& runtime, c10::Device device, Effort effort);
std::unique_ptr<Timer> make_cpu_timer(Effort effort);

}  // namespace warpfuse::host::bench
