// Times on a GPU: graphs of calls that rotate over inputs and outputs which the L2 cannot hold.

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include <cmath>

#include "bench/timer.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kMaxSets = 8192;
constexpr int64_t kMaxCalls = 8192;
constexpr int64_t kProbeCalls = 3;      // for a first estimate of a call's time
constexpr int64_t kCopyAlignment = 16;  // of CudaRuntime::launch_copy
constexpr int64_t kEmptyKernels = 1000;
constexpr int64_t kMaxMemoryShare = 8;  // the two tensors of the large copy take a quarter

class CudaTimer : public Timer {
 public:
  CudaTimer(CudaRuntime& runtime, c10::Device device, Effort effort,
            std::unique_ptr<GpuClock> clock)
      : runtime_(runtime),
        effort_(effort),
        facts_(runtime.device()),
        device_(device),
        clock_(std::move(clock)) {
    flush_ = at::empty({2 * facts_.l2_bytes}, bytes_here());
  }

  Json method() const override {
    return {
        {"graph", fmt::format("CUDA graph of calls {}; {} replays of at least {} us, works in turn",
                              inputs_in_words(), effort_.rounds, effort_.sample_us)},
        {"clock",
         clock_ ? fmt::format("samples are discarded while it is below {} of its highest rate",
                              kThrottledShare)
                : "not watched: NVML cannot read it"},
        {"event", "one call between two events, after twice the L2's size was written"},
        {"copy", fmt::format("graph of copies {}; the faster of cudaMemcpy and a kernel",
                             effort_.warm ? "between the same tensors"
                                          : "that rotate over as much memory")}};
  }

  int64_t sets_for(int64_t bytes) const override {
    return effort_.warm ? 1 : std::clamp<int64_t>(2 * facts_.l2_bytes / bytes + 1, 2, kMaxSets);
  }

  std::vector<Timing> time(const std::vector<Work>& works) override;
  std::vector<Work> copies(int64_t bytes) override;
  LargeCopy large_copy() override;
  std::optional<double> empty_kernel_us() override;

  void release_memory() override { runtime_.release_memory(); }
  std::optional<int64_t> peak_bytes(const std::function<void()>& action) override {
    return runtime_.peak_bytes(action);
  }

 private:
  struct Recorded {
    std::unique_ptr<CudaGraph> graph;
    int64_t calls = 0;
    std::vector<double> samples;
    std::vector<double> clock_shares;  // the lowest of each sample's time
    std::unique_ptr<CudaStopwatch> watch;
  };

  std::string inputs_in_words() const {
    return effort_.warm ? "on the same inputs and outputs"
                        : fmt::format(
                              "that rotate over inputs of more than twice the L2 ({} "
                              "bytes) in all, and over as much output",
                              facts_.l2_bytes);
  }

  double clock_share() { return clock_ ? clock_->share().value_or(1) : 1; }

  at::TensorOptions bytes_here() const { return at::TensorOptions(at::kByte).device(device_); }

  // Captures `calls` calls. Outputs are kept long enough that they rotate too.
  std::unique_ptr<CudaGraph> capture(const Work& work, int64_t calls, const CudaGraph* memory) {
    return runtime_.capture(
        [&] {
          std::vector<at::Tensor> outputs;
          for (int64_t i = 0; i < calls; ++i) {
            at::Tensor output = work.call(i % work.sets);
            if (!output.defined()) {
              continue;
            }
            const auto kept = static_cast<size_t>(sets_for(static_cast<int64_t>(output.nbytes())));
            if (outputs.size() < kept) {
              outputs.push_back(std::move(output));
            } else {
              outputs[static_cast<size_t>(i) % kept] = std::move(output);
            }
          }
        },
        memory);
  }

  // Calls per sample, a multiple of the number of inputs.
  int64_t calls_for(double call_us, int64_t sets) const {
    const auto wanted = static_cast<int64_t>(std::ceil(effort_.sample_us / call_us));
    const int64_t calls = std::clamp<int64_t>(wanted, 1, std::max(kMaxCalls, sets));
    return (calls + sets - 1) / sets * sets;
  }

  Recorded record(const Work& work, const CudaGraph* memory) {
    for (int64_t i = 0; i < work.sets && i < 2; ++i) {
      work.call(i);
    }
    const double launched_us = timed_us(&runtime_, [&] {
      for (int64_t i = 0; i < kProbeCalls; ++i) {
        work.call(i % work.sets);
      }
    });
    // Launching a short call takes longer than running it; the graph has the true time.
    Recorded recorded;
    recorded.calls = calls_for(launched_us / kProbeCalls, work.sets);
    for (bool again = true; again;) {
      recorded.graph = capture(work, recorded.calls, memory);
      recorded.graph->replay();
      const double graph_us = timed_us(&runtime_, [&] { recorded.graph->replay(); });
      const int64_t calls = calls_for(graph_us / static_cast<double>(recorded.calls), work.sets);
      again = calls > 2 * recorded.calls;
      recorded.calls = again ? calls : recorded.calls;
    }
    recorded.watch = runtime_.stopwatch();
    return recorded;
  }

  double event_p50(const Work& work) {
    std::vector<std::unique_ptr<CudaStopwatch>> watches;
    for (int round = 0; round < effort_.short_rounds; ++round) {
      watches.push_back(runtime_.stopwatch());
      flush_.zero_();  // long enough for the launches of the call to be queued meanwhile
      watches.back()->start();
      const at::Tensor output = work.call(round % work.sets);
      watches.back()->stop();
    }
    std::vector<double> samples;
    samples.reserve(watches.size());
    for (const auto& watch : watches) {
      samples.push_back(watch->microseconds());
    }
    return percentile(std::move(samples), 0.5);
  }

  CudaRuntime& runtime_;
  Effort effort_;
  CudaDevice facts_;
  c10::Device device_;
  std::unique_ptr<GpuClock> clock_;  // or null
  at::Tensor flush_;
};

std::vector<Timing> CudaTimer::time(const std::vector<Work>& works) {
  std::vector<Timing> timings(works.size());
  // The graphs run one at a time and share this one's memory.
  const auto memory = runtime_.capture([&] { runtime_.launch_empty_kernel(); });
  std::vector<Recorded> all(works.size());
  std::vector<size_t> order;  // of the works that can be timed
  for (size_t i = 0; i < works.size(); ++i) {
    try {
      all[i] = record(works[i], memory.get());
      timings[i].event_p50 = event_p50(works[i]);
      timings[i].kernels = all[i].graph->kernels() / all[i].calls;
      order.push_back(i);
    } catch (const c10::Error&) {
      all[i] = {};
      timings[i] = {};
      timings[i].failure = failure_text();
    }
  }
  for (int round = 0; round < effort_.rounds && !order.empty(); ++round) {
    if (interrupted() && round >= kMinRounds) {
      break;
    }
    // Not timed: the others are queued while it runs, so that no sample includes a launch.
    all[order.front()].graph->replay();
    for (const size_t i : order) {
      all[i].watch->start();
      all[i].graph->replay();
      all[i].watch->stop();
    }
    // Each wait ends as the next sample begins.
    double before = clock_share();
    for (const size_t i : order) {
      all[i].samples.push_back(all[i].watch->microseconds() / static_cast<double>(all[i].calls));
      const double after = clock_share();
      all[i].clock_shares.push_back(std::min(before, after));
      before = after;
    }
    std::ranges::rotate(order, order.begin() + 1);
  }
  for (const size_t i : order) {
    const UnthrottledSamples samples = unthrottled(all[i].samples, all[i].clock_shares);
    timings[i].call = percentiles_of(samples.kept);
    timings[i].discarded = samples.discarded;
    timings[i].throttled = samples.throttled;
  }
  return timings;
}

std::vector<Work> CudaTimer::copies(int64_t bytes) {
  const int64_t half =
      std::max((bytes / 2 + kCopyAlignment - 1) / kCopyAlignment, int64_t{1}) * kCopyAlignment;
  const int64_t sets = sets_for(half);
  const auto from =
      at::randn({sets, half / 4}, at::TensorOptions(at::kFloat).device(device_)).view(at::kByte);
  const auto to = at::empty({sets, half}, bytes_here());
  std::vector<at::Tensor> sources;
  std::vector<at::Tensor> targets;
  for (int64_t i = 0; i < sets; ++i) {
    sources.push_back(from.select(0, i));
    targets.push_back(to.select(0, i));
  }
  const auto memcpy = [sources, targets](int64_t i) {
    targets[static_cast<size_t>(i)].copy_(sources[static_cast<size_t>(i)]);
    return at::Tensor();
  };
  const auto kernel = [this, sources, targets, half](int64_t i) {
    runtime_.launch_copy(targets[static_cast<size_t>(i)].mutable_data_ptr(),
                         sources[static_cast<size_t>(i)].const_data_ptr(), half);
    return at::Tensor();
  };
  return {{memcpy, sets}, {kernel, sets}};
}

Timer::LargeCopy CudaTimer::large_copy() {
  const int64_t half = std::min(effort_.large_copy_bytes, facts_.free_bytes / kMaxMemoryShare) /
                       kCopyAlignment * kCopyAlignment;
  const auto from =
      at::randn({half / 4}, at::TensorOptions(at::kFloat).device(device_)).view(at::kByte);
  const at::Tensor to = at::empty({half}, bytes_here());
  std::vector<double> memcpy;
  std::vector<double> kernel;
  for (int round = -1; round < effort_.short_rounds; ++round) {
    const double memcpy_us = timed_us(&runtime_, [&] { to.copy_(from); });
    const double kernel_us = timed_us(&runtime_, [&] {
      runtime_.launch_copy(to.mutable_data_ptr(), from.const_data_ptr(), half);
    });
    if (round >= 0) {  // the first was a warm-up
      memcpy.push_back(memcpy_us);
      kernel.push_back(kernel_us);
    }
  }
  return {2 * half, std::min(percentile(memcpy, 0.5), percentile(kernel, 0.5))};
}

std::optional<double> CudaTimer::empty_kernel_us() {
  const std::unique_ptr<CudaGraph> graph = runtime_.capture([&] {
    for (int64_t i = 0; i < kEmptyKernels; ++i) {
      runtime_.launch_empty_kernel();
    }
  });
  return median_us(0, effort_.rounds, [&] {
    graph->replay();
    return timed_us(&runtime_, [&] { graph->replay(); }) / kEmptyKernels;
  });
}

}  // namespace

Json describe_gpu(const CudaRuntime& runtime) {
  const CudaDevice facts = runtime.device();
  return {{"type", "cuda"},
          {"name", facts.name},
          {"multiprocessors", facts.multiprocessors},
          {"memory_bytes", facts.memory_bytes},
          {"l2_bytes", facts.l2_bytes}};
}

std::unique_ptr<Timer> make_cuda_timer(CudaRuntime& runtime, c10::Device device, Effort effort,
                                       std::unique_ptr<GpuClock> clock) {
  return std::make_unique<CudaTimer>(runtime, device, effort, std::move(clock));
}

}  // namespace warpfuse::host::bench
