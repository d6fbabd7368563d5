#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace warpfuse::host {

// What the host needs of CUDA beyond libtorch's operators: graphs, times, facts of the device. The
// program links no CUDA library; a module of its own, libwarpfuse_host_cuda.so, implements this and
// is opened when a GPU was chosen.

struct CudaDevice {
  std::string name;
  std::string driver;  // such as "580.159.04"
  int64_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  int64_t l2_bytes = 0;
};

struct StepState;

// Work that was captured once and runs again, with the same addresses, at each replay.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  // On the current stream; returns before the work is done.
  virtual void replay() = 0;
  // Kernels of one replay.
  virtual int64_t kernels() const = 0;
};

// The GPU's time between two points of the current stream.
class CudaStopwatch {
 public:
  virtual ~CudaStopwatch() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  // Waits until stop was reached.
  virtual double microseconds() = 0;
};

class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  virtual CudaDevice device() const = 0;

  // Calls `work` once on a stream of its own; what it would launch becomes the graph. It must not
  // wait for the device. Tensors that it makes live in the graph's memory, which a later graph may
  // use too: `memory_of` must then live as long as that graph, and no two of them may be in use at
  // once. Warm up first: what a library sets up at its first call cannot be captured.
  virtual std::unique_ptr<CudaGraph> capture(const std::function<void()>& work,
                                             const CudaGraph* memory_of = nullptr) = 0;
  // Runs `work` on the stream of captures and waits for it: what a library sets up for a stream is
  // then there.
  virtual void warm_up(const std::function<void()>& work) = 0;
  virtual std::unique_ptr<CudaStopwatch> stopwatch() = 0;
  virtual void synchronize() = 0;
  // Whether the current stream has nothing left to do. Throws what its work failed with.
  virtual bool idle() = 0;
  // Runs `action` and waits for the device. The most bytes that were asked of libtorch's allocator
  // at once, beyond those of before.
  virtual int64_t peak_bytes(const std::function<void()>& action) = 0;
  // Gives the memory that no tensor uses back to the device.
  virtual void release_memory() = 0;

  // On the current stream: a kernel that does nothing; a copy of so many bytes (a multiple of 16,
  // as are the addresses) by a kernel.
  virtual void launch_empty_kernel() = 0;
  virtual void launch_copy(void* to, const void* from, int64_t bytes) = 0;
  // The same as advance() of step_state.h; `state.published` is host memory that the GPU can reach.
  virtual void launch_advance(const StepState& state, const int64_t* tokens) = 0;

  // What a profiler that is told not to start by itself records.
  virtual void start_profiler() = 0;
  virtual void stop_profiler() = 0;
};

// Whether the module was built and is beside this program or in ../lib.
bool has_cuda_runtime();

// Opens the module where there is one: operators of its own, which product_epilogues.h takes, are
// there then. libtorch_cuda must be loaded.
void load_cuda_operators();

// Opens the module for a GPU, once libtorch_cuda is loaded. Throws Error(device) where there is no
// module, or it cannot be opened.
std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device);
// The same with the module at `path`.
std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device,
                                               const std::filesystem::path& path);

}  // namespace warpfuse::host
