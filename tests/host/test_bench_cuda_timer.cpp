// How the GPU's timer plans its graphs, with a runtime whose clock is made up.

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/gpu_clock.h"
#include "bench/timer.h"
#include "fake_runtime.h"
#include "support/catch.h"

using namespace warpfuse::host;
using namespace warpfuse::host::bench;

namespace {

constexpr int64_t kL2 = 1000;

// Work takes the time that it says; in a capture that time goes to the graph.
class TimedRuntime : public FakeRuntime {
 public:
  TimedRuntime() { free_bytes = 1 << 20; }
  CudaDevice device() const override {
    CudaDevice device = FakeRuntime::device();
    device.l2_bytes = kL2;
    return device;
  }

  void spend(double microseconds) {
    (capturing_ ? captured_us_ : clock_us_) += microseconds;
    captured_kernels_ += capturing_ ? 1 : 0;
  }
  bool capturing() const { return capturing_; }

  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work,
                                     const CudaGraph* memory_of) override {
    memory_holders.push_back(memory_of);
    capturing_ = true;
    captured_us_ = 0;
    captured_kernels_ = 0;
    try {
      work();
    } catch (...) {
      capturing_ = false;
      throw;
    }
    capturing_ = false;
    return std::make_unique<Graph>(*this, captured_us_, captured_kernels_);
  }
  std::unique_ptr<CudaStopwatch> stopwatch() override { return std::make_unique<Watch>(*this); }
  int64_t peak_bytes(const std::function<void()>& action) override {
    action();
    return 0;
  }
  void launch_empty_kernel() override { spend(1.5); }
  void launch_copy(void* to, const void* from, int64_t bytes) override {
    spend(3);
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  std::vector<const CudaGraph*> memory_holders;

 private:
  struct Graph : CudaGraph {
    Graph(TimedRuntime& r, double us, int64_t kernels) : runtime(r), us(us), count(kernels) {}
    void replay() override { runtime.clock_us_ += us; }
    int64_t kernels() const override { return count; }
    TimedRuntime& runtime;
    double us;
    int64_t count;
  };
  struct Watch : CudaStopwatch {
    explicit Watch(TimedRuntime& r) : runtime(r) {}
    void start() override { begin = runtime.clock_us_; }
    void stop() override { end = runtime.clock_us_; }
    double microseconds() override { return end - begin; }
    TimedRuntime& runtime;
    double begin = 0, end = 0;
  };

  double clock_us_ = 0, captured_us_ = 0;
  int64_t captured_kernels_ = 0;
  bool capturing_ = false;
};

constexpr Effort kEffort{
    .rounds = 6, .short_rounds = 3, .sample_us = 1000, .large_copy_bytes = 1 << 20};

std::unique_ptr<Timer> timer_with(TimedRuntime& runtime,
                                  std::unique_ptr<GpuClock> clock = nullptr) {
  return make_cuda_timer(runtime, at::kCPU, kEffort, std::move(clock));
}

// Reads these shares, one after the other, and then the last of them.
class FakeClock : public GpuClock {
 public:
  explicit FakeClock(std::vector<std::optional<double>> shares) : shares_(std::move(shares)) {}
  std::optional<double> share() override { return shares_[std::min(next_++, shares_.size() - 1)]; }

 private:
  std::vector<std::optional<double>> shares_;
  size_t next_ = 0;
};

bool near(double a, double b) { return std::abs(a - b) < 1e-6; }

}  // namespace

TEST_CASE("a graph rotates over all inputs and lasts as long as a sample", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  std::vector<int64_t> captured;
  const Work work{[&](int64_t i) {
                    if (runtime.capturing()) {
                      captured.push_back(i);
                    }
                    runtime.spend(7);
                    return at::empty({100}, at::kByte);
                  },
                  5};
  const std::vector<Timing> timings = timer->time({work});
  REQUIRE(timings.size() == 1);
  CHECK(timings[0].failure.empty());
  CHECK(near(timings[0].call.p50, 7));
  CHECK(near(timings[0].event_p50.value_or(0), 7));
  CHECK(timings[0].kernels == 1);
  REQUIRE(captured.size() >= 1000 / 7);
  CHECK(captured.size() % 5 == 0);
  for (size_t i = 0; i < captured.size(); ++i) {
    CHECK(captured[i] == static_cast<int64_t>(i % 5));
  }
}

TEST_CASE("works are timed apart, and one that fails leaves the others", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  const auto taking = [&](double us) {
    return Work{[&runtime, us](int64_t) {
                  runtime.spend(us);
                  return at::Tensor();
                },
                2};
  };
  const Work failing{[&](int64_t) -> at::Tensor {
                       TORCH_CHECK(!runtime.capturing(), "cannot be captured\nmore");
                       return {};
                     },
                     2};
  const std::vector<Timing> timings = timer->time({taking(3), failing, taking(50), taking(4000)});
  CHECK(near(timings[0].call.p50, 3));
  CHECK(timings[1].failure == "cannot be captured");
  CHECK(near(timings[2].call.p50, 50));
  CHECK(near(timings[3].call.p5, 4000));
  // All graphs but the first, which holds the memory, share it.
  CHECK(runtime.memory_holders.front() == nullptr);
  CHECK(std::ranges::count(runtime.memory_holders, nullptr) == 1);
}

TEST_CASE("a work that fails beside its graph leaves the others", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  const auto taking = [&](double us, bool fails) {
    return Work{[&runtime, us, fails, captured = false](int64_t) mutable {
                  captured = captured || runtime.capturing();
                  TORCH_CHECK(!fails || !captured || runtime.capturing(), "once too often");
                  runtime.spend(us);
                  return at::Tensor();
                },
                2};
  };
  const std::vector<Timing> timings =
      timer->time({taking(3, false), taking(4, true), taking(50, false)});
  CHECK(near(timings[0].call.p50, 3));
  CHECK(timings[1].failure == "once too often");
  CHECK(near(timings[2].call.p50, 50));
}

TEST_CASE("a lack of memory is told alike on all devices", "[bench]") {
  const Work work{[](int64_t) { return at::empty({int64_t{1} << 60}, at::kByte); }, 1};
  CHECK(make_cpu_timer(kEffort)->time({work}).at(0).failure.starts_with("out of memory: "));
}

TEST_CASE("outputs rotate over twice the L2 and are then given back", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  int64_t alive = 0;
  int64_t most = 0;
  const Work work{[&](int64_t) {
                    runtime.spend(10);
                    alive += runtime.capturing() ? 1 : 0;
                    most = std::max(most, alive);
                    auto* bytes = new char[100];
                    return at::from_blob(
                        bytes, {100},
                        [&alive, bytes, counted = runtime.capturing()](void*) {
                          alive -= counted ? 1 : 0;
                          delete[] bytes;
                        },
                        at::kByte);
                  },
                  2};
  timer->time({work});
  CHECK(alive == 0);
  CHECK(most * 100 > 2 * kL2);
  CHECK(most * 100 < 4 * kL2);
}

TEST_CASE("inputs exceed twice the L2, and are two at least", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  CHECK(timer->sets_for(100) * 100 > 2 * kL2);
  CHECK(timer->sets_for(100) * 100 <= 2 * kL2 + 100);
  CHECK(timer->sets_for(1 << 20) == 2);
}

TEST_CASE("a device is described without memory of it", "[bench]") {
  const TimedRuntime runtime;
  const Json device = describe_gpu(runtime);
  CHECK(device.at("name") == "fake");
  CHECK(device.at("l2_bytes") == kL2);
  CHECK(runtime.memory_holders.empty());
}

TEST_CASE("copies move half of the bytes each way", "[bench]") {
  TimedRuntime runtime;
  const auto timer = timer_with(runtime);
  for (const Work& copy : timer->copies(3200)) {
    CHECK(copy.sets * 1600 > 2 * kL2);
    for (int64_t i = 0; i < copy.sets; ++i) {
      CHECK_FALSE(copy.call(i).defined());
    }
  }
  const Timer::LargeCopy large = timer->large_copy();
  CHECK(large.bytes == 2 * (1 << 20) / 8);  // an eighth of what is free, read and written
  CHECK(near(timer->empty_kernel_us().value_or(0), 1.5));
}

TEST_CASE("samples while the clock was down are left out and counted", "[bench]") {
  using Shares = std::vector<std::optional<double>>;
  // Each round reads before its sample and after it.
  const auto timing_with = [](const Shares& shares) {
    TimedRuntime runtime;
    const Work work{[&](int64_t) {
                      runtime.spend(1000);
                      return at::Tensor();
                    },
                    1};
    return timer_with(runtime, std::make_unique<FakeClock>(shares))->time({work}).at(0);
  };
  const Timing steady = timing_with({1.0});
  CHECK(steady.discarded == 0);
  CHECK_FALSE(steady.throttled);
  // Round 0 ends with it down, round 1 begins so; round 3 has it down throughout.
  const Timing dips = timing_with({1.0, 0.7, 0.5, 1.0, 1.0, 0.75, 0.3, 0.3, 1.0});
  CHECK(dips.discarded == 3);
  CHECK_FALSE(dips.throttled);
  const Timing hot = timing_with({0.7});
  CHECK(hot.discarded == 0);
  CHECK(hot.throttled);
  CHECK(near(hot.call.p50, 1000));
  const Timing unknown = timing_with({std::nullopt});
  CHECK(unknown.discarded == 0);
  CHECK_FALSE(unknown.throttled);
}

TEST_CASE("what is left out is what was slow", "[bench]") {
  const UnthrottledSamples some = unthrottled({1, 9, 2, 8}, {1.0, 0.74, 0.75, 0.1});
  CHECK(some.kept == std::vector<double>{1, 2});
  CHECK(some.discarded == 2);
  CHECK_FALSE(some.throttled);
  const UnthrottledSamples most = unthrottled({1, 9, 8}, {1.0, 0.7, 0.7});
  CHECK(most.kept == std::vector<double>{1, 9, 8});
  CHECK(most.discarded == 0);
  CHECK(most.throttled);
}

TEST_CASE("a GPU that NVML does not know has no clock", "[bench]") {
  CHECK(open_gpu_clock("no place on the bus") == nullptr);
}
