#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace warpfuse::host {

// The host's own CUDA code: graphs, timers, device properties. The program links no CUDA library;
// libwarpfuse_host_cuda.so implements this interface and is loaded only when a GPU is selected.

struct CudaDevice {
  std::string name;
  std::string driver;           // such as "580.159.04"
  std::string pci_bus_id = {};  // such as "0000:1B:00.0"
  int64_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  int64_t l2_bytes = 0;
  int capability = 0;              // 90 for 9.0
  int64_t block_shared_bytes = 0;  // of shared memory, that a block may have
  bool cooperative = false;        // all blocks of a kernel can be made to run at once
};

struct StepState;
struct FirstTokens;

// Captured work; each replay uses the same addresses.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  // Launches on the current stream and does not wait.
  virtual void replay() = 0;
  // Kernels per replay.
  virtual int64_t kernels() const = 0;
};

// GPU time between two points of the current stream.
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

  // Captures the launches of `work` on a separate stream. `work` must not synchronise. Its tensors
  // live in the graph's memory, which a later graph may share: `memory_of` must then outlive that
  // graph, and no two of them may run at once. Warm up first: lazy library initialisation cannot be
  // captured.
  virtual std::unique_ptr<CudaGraph> capture(const std::function<void()>& work,
                                             const CudaGraph* memory_of = nullptr) = 0;
  // Runs `work` on the capture stream and waits for it, so that libraries initialise for that
  // stream.
  virtual void warm_up(const std::function<void()>& work) = 0;
  virtual std::unique_ptr<CudaStopwatch> stopwatch() = 0;
  virtual void synchronize() = 0;
  // Whether the current stream is empty. Throws the error of its work.
  virtual bool idle() = 0;
  // Runs `action` and synchronises. Returns the allocator's peak of requested bytes above the value
  // before.
  virtual int64_t peak_bytes(const std::function<void()>& action) = 0;
  // Returns cached memory to the device.
  virtual void release_memory() = 0;

  // Launch on the current stream: an empty kernel; a copy by a kernel (bytes and addresses are
  // multiples of 16).
  virtual void launch_empty_kernel() = 0;
  virtual void launch_copy(void* to, const void* from, int64_t bytes) = 0;
  // advance() and begin() of step_state.h as kernels; `state.published` is host memory that the GPU
  // can reach.
  virtual void launch_advance(const StepState& state, const int64_t* tokens) = 0;
  virtual void launch_begin(const StepState& state, const FirstTokens& first) = 0;

  // Marks the region for `ncu --profile-from-start off`.
  virtual void start_profiler() = 0;
  virtual void stop_profiler() = 0;
};

// Loads the module for its operators, which fuse_epilogues() uses; false if it was not built.
// libtorch_cuda must be loaded.
bool load_cuda_operators();

// Loads the module for a GPU; libtorch_cuda must be loaded. Null for the CPU. Throws Error(device)
// if the module is missing or cannot be loaded.
std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device);
// The same with the module at `path`.
std::unique_ptr<CudaRuntime> open_cuda_runtime(c10::Device device,
                                               const std::filesystem::path& path);

}  // namespace warpfuse::host
