// libwarpfuse_host_cuda.so: CudaRuntime with libtorch_cuda and the CUDA runtime.

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_profiler_api.h>

#include <fstream>
#include <vector>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/step_state.h"

namespace warpfuse::host {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1e3;

// --- kernels ----------------------------------------------------------------------------------

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // 16-byte loads that a thread has in flight

__global__ void empty_kernel() {}

// Many short blocks: a block moves kThreads * kPacks packs.
__global__ void __launch_bounds__(kThreads)
    copy_kernel(uint4* __restrict__ to, const uint4* __restrict__ from, int64_t packs) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kPacks + threadIdx.x;
  uint4 held[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * kThreads < packs) {
      held[i] = from[first + i * kThreads];
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (first + i * kThreads < packs) {
      to[first + i * kThreads] = held[i];
    }
  }
}

// One block, so that its barrier stands between the tokens and their publication.
__device__ void publish(const StepState& state, int64_t step) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    *state.count = step + 1;
    *static_cast<volatile int64_t*>(state.published) = step + 1;
  }
}

__global__ void __launch_bounds__(kThreads) advance_kernel(StepState state, const int64_t* tokens) {
  const int64_t step = *state.count;
  for (int64_t row = threadIdx.x; row < state.rows; row += blockDim.x) {
    advance_row(state, step, row, tokens[row]);
  }
  publish(state, step);
}

__global__ void __launch_bounds__(kThreads) begin_kernel(StepState state, FirstTokens first) {
  const int64_t step = *state.count;
  for (int64_t i = threadIdx.x; i < first.count; i += blockDim.x) {
    begin_row(state, step, first, i);
  }
  if (first.published) {
    publish(state, step);
  }
}

// --- the runtime ------------------------------------------------------------------------------

int64_t count_kernels(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  int64_t kernels = 0;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
  }
  return kernels;
}

// CUDAGraph takes care of the device's default generator: what a captured call draws is other
// numbers in each replay.
class Graph : public CudaGraph {
 public:
  Graph(const std::function<void()>& work, const Graph* memory_of, c10::cuda::CUDAStream stream)
      : graph_(/*keep_graph=*/true) {
    const c10::cuda::CUDAStreamGuard guard(stream);
    graph_.capture_begin(memory_of != nullptr ? memory_of->pool_ : c10::MempoolId_t{0, 0});
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
    graph_.instantiate();
    C10_CUDA_CHECK(cudaGraphUpload(graph_.raw_cuda_graph_exec(), stream));  // else a replay waits
    // Seed and offset are written as a capture begins, on its stream, and by a replay on another.
    stream.synchronize();
    pool_ = graph_.pool();
    kernels_ = count_kernels(graph_.raw_cuda_graph());
  }

  void replay() override { graph_.replay(); }
  int64_t kernels() const override { return kernels_; }

 private:
  // The stream and the allocator leave the capture; that the capture failed is known already.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      cudaGetLastError();
    }
  }

  at::cuda::CUDAGraph graph_;
  c10::MempoolId_t pool_;
  int64_t kernels_ = 0;
};

class Stopwatch : public CudaStopwatch {
 public:
  Stopwatch() {
    C10_CUDA_CHECK(cudaEventCreate(&start_));
    C10_CUDA_CHECK(cudaEventCreate(&stop_));
  }
  ~Stopwatch() override {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start() override { record(start_); }
  void stop() override { record(stop_); }

  double microseconds() override {
    C10_CUDA_CHECK(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return milliseconds * kMicrosecondsPerMillisecond;
  }

 private:
  static void record(cudaEvent_t event) {
    C10_CUDA_CHECK(cudaEventRecord(event, c10::cuda::getCurrentCUDAStream()));
  }

  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

// Of the kernel module; the CUDA version that it serves where that cannot be read.
std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (file >> version) {
    return version;
  }
  int number = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&number));
  return "CUDA " + std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

class Runtime : public CudaRuntime {
 public:
  explicit Runtime(c10::DeviceIndex index)
      : index_(index), capture_stream_(prepare_stream(index)) {}

  CudaDevice device() const override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index_));
    char pci_bus_id[32];
    C10_CUDA_CHECK(cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, index_));
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return {.name = properties.name,
            .driver = driver_version(),
            .pci_bus_id = pci_bus_id,
            .multiprocessors = properties.multiProcessorCount,
            .memory_bytes = static_cast<int64_t>(total_bytes),
            .free_bytes = static_cast<int64_t>(free_bytes),
            .l2_bytes = properties.l2CacheSize,
            .capability = 10 * properties.major + properties.minor,
            .block_shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
            .cooperative = properties.cooperativeLaunch != 0};
  }

  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work,
                                     const CudaGraph* memory_of) override {
    synchronize();
    return std::make_unique<Graph>(work, dynamic_cast<const Graph*>(memory_of), capture_stream_);
  }

  void warm_up(const std::function<void()>& work) override {
    synchronize();
    {
      const c10::cuda::CUDAStreamGuard guard(capture_stream_);
      work();
    }
    synchronize();
  }

  std::unique_ptr<CudaStopwatch> stopwatch() override { return std::make_unique<Stopwatch>(); }
  void synchronize() override { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
  bool idle() override {
    const cudaError_t state = cudaStreamQuery(c10::cuda::getCurrentCUDAStream());
    if (state == cudaErrorNotReady) {
      return false;
    }
    C10_CUDA_CHECK(state);
    return true;
  }
  int64_t peak_bytes(const std::function<void()>& action) override {
    const auto requested = [this] {
      return c10::cuda::CUDACachingAllocator::getDeviceStats(index_)
          .requested_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    };
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
    const int64_t before = requested().current;
    action();
    synchronize();
    return requested().peak - before;
  }
  void release_memory() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  void launch_empty_kernel() override {
    empty_kernel<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>();
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  void launch_copy(void* to, const void* from, int64_t bytes) override {
    const int64_t packs = bytes / static_cast<int64_t>(sizeof(uint4));
    const int64_t blocks = (packs + kThreads * kPacks - 1) / (kThreads * kPacks);
    copy_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        static_cast<uint4*>(to), static_cast<const uint4*>(from), packs);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  void launch_advance(const StepState& state, const int64_t* tokens) override {
    advance_kernel<<<1, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(state, tokens);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  void launch_begin(const StepState& state, const FirstTokens& first) override {
    begin_kernel<<<1, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(state, first);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  void start_profiler() override { C10_CUDA_CHECK(cudaProfilerStart()); }
  void stop_profiler() override { C10_CUDA_CHECK(cudaProfilerStop()); }

 private:
  static c10::cuda::CUDAStream prepare_stream(c10::DeviceIndex index) {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::set_device(index);
    return c10::cuda::getStreamFromPool();
  }

  c10::DeviceIndex index_;
  // The default stream cannot be captured; and graphs share memory only if they come from one
  // stream, since the allocator gives a freed block to the stream that it was on.
  c10::cuda::CUDAStream capture_stream_;
};

}  // namespace
}  // namespace warpfuse::host

extern "C" __attribute__((visibility("default"))) warpfuse::host::CudaRuntime*
warpfuse_host_make_cuda_runtime(int index) {
  return new warpfuse::host::Runtime(static_cast<c10::DeviceIndex>(index));
}
